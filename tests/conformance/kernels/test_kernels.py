"""Every set of kernels computes what the plain reference computes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import kernel_cases
import pytest
import sampling_cases
from kernel_cases import HEADS, PRODUCTS, STEPS, TOLERANCE, Heads, Product, Step

Measure = Callable[..., float]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[ProcessPoolExecutor]:
    """A process whose Triton interprets: here it may have been imported already, and then it is too late to ask."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=kernel_cases.interpret_triton) as pool:
        yield pool


@pytest.fixture
def interpreted(interpreter: ProcessPoolExecutor) -> Measure:
    """Runs a measure of kernel_cases with Triton's kernels; gives the largest difference."""

    def run(function: Any, *rest: Any) -> float:
        return float(interpreter.submit(function, "triton", *rest).result(timeout=300))

    return run


@pytest.fixture(params=["cpu", "triton"])
def measure(request: pytest.FixtureRequest) -> Measure:
    """Runs a measure of kernel_cases with this set of kernels; gives the largest difference."""
    if request.param == "cpu":
        return lambda function, *rest: float(function("cpu", *rest))
    found: Measure = request.getfixturevalue("interpreted")
    return found


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

    @pytest.mark.parametrize("normed", [False, True], ids=["as they are", "normalised heads"])
    @pytest.mark.parametrize("heads", [pytest.param(heads, id=name) for name, heads in HEADS.items()])
    def test_rotate_and_write(self, measure: Measure, heads: Heads, dtype: str, normed: bool) -> None:
        assert measure(kernel_cases.rotate_and_write_error, heads, dtype, normed) <= TOLERANCE[dtype] * 4

    @pytest.mark.parametrize("shape", [(1, 16), (3, 2100)], ids=["one row", "rows of two tiles"])
    def test_silu_and_mul(self, measure: Measure, shape: tuple[int, int], dtype: str) -> None:
        assert measure(kernel_cases.silu_and_mul_error, shape, dtype) <= TOLERANCE[dtype]

    @pytest.mark.parametrize("product", [pytest.param(product, id=name) for name, product in PRODUCTS.items()])
    def test_linear_of_a_quantized_matrix(self, interpreted: Measure, product: Product, dtype: str) -> None:
        assert interpreted(kernel_cases.linear_error, product, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("vocabulary", [5, 70, 300])
def test_the_device_chooses_the_same_tokens(interpreter: ProcessPoolExecutor, vocabulary: int) -> None:
    assert interpreter.submit(sampling_cases.differing_tokens, vocabulary, 40).result(timeout=300) == 0


def test_what_the_device_draws_from_damaged_logits_is_in_the_vocabulary(interpreter: ProcessPoolExecutor) -> None:
    tokens = interpreter.submit(sampling_cases.tokens_of_damaged_rows).result(timeout=300)
    assert all(0 <= token < 70 for token in tokens)


@pytest.mark.parametrize("codes", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
class TestCacheInCodes:
    @pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in list(STEPS.items())[3:11]])
    def test_attention(self, interpreted: Measure, step: Step, dtype: str, codes: str) -> None:
        assert interpreted(kernel_cases.attention_error, step, dtype, "cpu", codes) <= TOLERANCE[dtype]

    @pytest.mark.parametrize("normed", [False, True], ids=["as they are", "normalised heads"])
    @pytest.mark.parametrize("heads", [pytest.param(heads, id=name) for name, heads in HEADS.items()])
    def test_rotate_and_write(self, interpreted: Measure, heads: Heads, dtype: str, normed: bool, codes: str) -> None:
        assert (
            interpreted(kernel_cases.rotate_and_write_error, heads, dtype, normed, "cpu", codes) <= TOLERANCE[dtype] * 4
        )
