"""The traces that the benchmark is made of, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tidegate_lab.traffic.read import read_trace
from tidegate_lab.traffic.synthetic import Lengths, Stage, constant, on_off, slow_day, stages
from tidegate_lab.traffic.table import TraceError
from tidegate_lab.traffic.trace import Trace

FOLDER = Path(__file__).parents[2] / "traces"
"""In the source tree; a wheel has none."""

LLMD_STAGES = [Stage(rate, s) for rate, s in zip((2, 4, 6, 8, 10, 4, 1), (330, *(360,) * 5, 300), strict=True)]
"""llm-d's published scenario, evenly spaced (guides/workload-autoscaling/slo-aware/benchmark-templates)."""


def named(name: str) -> Trace:
    """The trace of this name, the same at every call; raises TraceError where it is not known or its file not there."""
    make = TRACES.get(name)
    if make is None:
        raise TraceError(f"trace {name!r}: is not known; the names are {', '.join(TRACES)}")
    return make(name)


def recorded(file: str) -> Path:
    """Where a recorded trace, or run, of this name lies; raises TraceError outside the source tree."""
    path = FOLDER / file
    if not path.exists():
        raise TraceError(f"{path}: is not there; recorded traces are in the source tree only, so run from a checkout")
    return path


def _read(file: str) -> Callable[[str], Trace]:
    return lambda name: read_trace(recorded(file), name=name)


def _conversation() -> Lengths:
    return Lengths.of(named("azure-conv"))


def _llmd_lengths() -> Lengths:
    """Normal about 4,000 (3,500 to 4,500) in and 1,000 (900 to 1,100) out, as their load generator draws them."""
    random = np.random.default_rng(11)
    prompt = np.clip(random.normal(4000, 300, 8000), 3500, 4500)
    output = np.clip(random.normal(1000, 80, 8000), 900, 1100)
    return Lengths(prompt.astype(np.int32), output.astype(np.int32))


TRACES: dict[str, Callable[[str], Trace]] = {
    "azure-conv": _read("AzureLLMInferenceTrace_conv.csv"),
    "azure-code": _read("AzureLLMInferenceTrace_code.csv"),
    "servegen-24h": _read("servegen_r1_24h_keep25.csv.gz"),
    "aibrix-up-down": _read("aibrix_8min_up_and_down_lengths.jsonl"),
    "constant": lambda name: constant(name, 20, 3600, _conversation(), seed=1),
    "step-up-10x": lambda name: stages(name, [Stage(4, 900), Stage(40, 1800)], _conversation(), seed=2),
    "step-down-10x": lambda name: stages(name, [Stage(40, 1200), Stage(4, 1800)], _conversation(), seed=3),
    "on-off": lambda name: on_off(name, Stage(30, 300), Stage(3, 600), 6, _conversation(), seed=4),
    "slow-day": lambda name: slow_day(name, 1, 9, _conversation(), seed=5),
    "llmd-stages": lambda name: stages(name, LLMD_STAGES, _llmd_lengths(), cv=0, seed=6),
}
"""Rates of the synthetic ones are a beginning: the benchmark scales each to its engine."""
