"""The machine that is measured on: its processor, and how fast its memory can be read."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SIMD = (
    "avx", "avx2", "fma", "f16c", "bmi2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
"""Names in /proc/cpuinfo that kernels choose by."""
_BUFFER = 256 * 2**20
"""Bytes a thread reads: far more than any cache."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures hold for."""

    processor: str
    instruction_sets: list[str]
    cores: int
    """that this process may run on"""
    load_average: float
    """over the last minute, before anything was measured: above 0.5 others were at work"""
    read_bandwidth: float
    """bytes a second, all cores together"""


def look(read: Callable[[int], float], cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """This machine; `read` measures the bandwidth of so many threads."""
    lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    flags = (facts.get("flags") or facts.get("Features", "")).split()
    cores = len(os.sched_getaffinity(0))
    return Machine(
        processor=facts.get("model name", "unknown"),
        instruction_sets=[name for name in SIMD if name in flags],
        cores=cores,
        load_average=os.getloadavg()[0],
        read_bandwidth=read(cores),
    )


def read_bandwidth(threads: int, seconds: float = 1.0) -> float:
    """Bytes a second that so many threads together can read: the best of passes over a second."""
    parts = [np.ones(_BUFFER // 8, dtype=np.int64) for _ in range(threads)]
    best = 0.0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        # np.max vectorises and lets other threads run; a sum would wait for its own additions.
        workers = [threading.Thread(target=np.max, args=(part,)) for part in parts]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * _BUFFER / (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    # In a process of its own, so that it is measured with the priority that the engines get.
    sys.stdout.write(f"{read_bandwidth(int(sys.argv[1]))}")
