"""Every Triton kernel becomes machine code for Hopper: the interpreter takes much that a GPU refuses.

Among that: products of fewer than 16 rows, tiles over the shared memory, operations that only numpy has.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import triton_offline


def test_every_kernel_becomes_machine_code_that_fits_a_gpu(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(triton_offline.shared_memory, tmp_path).result(timeout=500)
    assert len(found) >= 8
    assert not {name: size for name, size in found.items() if size > triton_offline.SHARED_MEMORY}
