"""Every set of kernels computes what the plain reference computes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import kernel_cases
import pytest
from kernel_cases import TOLERANCE, Step

Measure = Callable[..., float]

STEPS = {
    "a prompt from nothing": Step((5,), (5,)),
    "a prompt of one token": Step((1,), (1,)),
    "a prompt that fills its blocks": Step((8,), (8,)),
    "prompts of odd lengths, six heads over two": Step((7, 13, 1), (7, 13, 1), heads=6, kv_heads=2),
    "a chunk after cached tokens": Step((5, 6), (14, 35)),
    "a chunk longer than a tile": Step((45,), (50,)),
    "decoding at different lengths": Step((1, 1, 1, 1), (3, 4, 17, 1)),
    "decoding contexts long enough to be split": Step((1, 1), (200, 66), block_size=16),
    "prompts and decoding in one step": Step((1, 6, 1, 3), (9, 6, 2, 40)),
    "as many key heads as query heads": Step((4, 1), (6, 9), heads=3, kv_heads=3),
    "four heads to a key": Step((3, 1), (3, 12), heads=8, kv_heads=2),
    "SmolLM2's heads": Step((4, 1), (20, 33), heads=9, kv_heads=3, head_dim=64, block_size=16),
    "heads of 128": Step((3, 1), (3, 19), heads=2, kv_heads=1, head_dim=128, block_size=16),
    "heads of 80, no power of two": Step((3, 1), (5, 7), heads=2, kv_heads=1, head_dim=80),
}


@pytest.fixture(scope="module")
def interpreter() -> Iterator[ProcessPoolExecutor]:
    """A process whose Triton interprets: here it may have been imported already, and then it is too late to ask."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=kernel_cases.interpret_triton) as pool:
        yield pool


@pytest.fixture(params=["cpu", "triton"])
def measure(request: pytest.FixtureRequest) -> Measure:
    """Runs a measure of kernel_cases with this set of kernels; gives the largest difference."""
    if request.param == "cpu":
        return lambda function, *rest: float(function("cpu", *rest))
    pool: ProcessPoolExecutor = request.getfixturevalue("interpreter")

    def run(function: Any, *rest: Any) -> float:
        return float(pool.submit(function, "triton", *rest).result(timeout=300))

    return run


@pytest.mark.parametrize("dtype", ["float32", "float16"])
class TestEveryKernel:
    @pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in STEPS.items()])
    def test_attention(self, measure: Measure, step: Step, dtype: str) -> None:
        assert measure(kernel_cases.attention_error, step, dtype) <= TOLERANCE[dtype]

    @pytest.mark.parametrize("shape", [(1, 16), (5, 576), (3, 4, 64)], ids=["one row", "odd width", "rows of heads"])
    def test_rms_norm(self, measure: Measure, shape: tuple[int, ...], dtype: str) -> None:
        assert measure(kernel_cases.rms_norm_error, shape, dtype) <= TOLERANCE[dtype] * 4

    @pytest.mark.parametrize("shape", [(1, 16), (5, 576)], ids=["one row", "odd width"])
    def test_add_rms_norm(self, measure: Measure, shape: tuple[int, int], dtype: str) -> None:
        assert measure(kernel_cases.add_rms_norm_error, shape, dtype) <= TOLERANCE[dtype] * 4

    @pytest.mark.parametrize("shape", [(1, 2, 16), (6, 12, 64), (3, 5, 80)], ids=["small", "SmolLM2", "odd"])
    def test_rotate_leaves_values_alone(self, measure: Measure, shape: tuple[int, int, int], dtype: str) -> None:
        assert measure(kernel_cases.rotate_error, shape, dtype) <= TOLERANCE[dtype]

    @pytest.mark.parametrize("slots", [[0], [7, 3, 4, 11], list(range(12))], ids=["first", "scattered", "all"])
    def test_write_kv_writes_nowhere_else(self, measure: Measure, slots: list[int], dtype: str) -> None:
        assert measure(kernel_cases.write_kv_error, slots, (3, 3, 4, 16), dtype, "cpu") == 0.0
