"""Quantizing a matrix when it is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_engine.files.quantization import Quantization
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.model.quantize import GROUP, float8, group_size, quantize
from tidegate_engine.model.quantized_source import QuantizedSource

NAMES = {
    "the embedding": "model.embed_tokens.weight",
    "the head": "lm_head.weight",
    "a projection to queries": "model.layers.0.self_attn.q_proj.weight",
    "a projection to values": "model.layers.0.self_attn.v_proj.weight",
    "a projection of the MLP": "model.layers.0.mlp.down_proj.weight",
    "an expert": "model.layers.0.block_sparse_moe.experts.3.w1.weight",
    "a router": "model.layers.0.block_sparse_moe.gate.weight",
    "a norm": "model.norm.weight",
}


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


class Tensors:
    """A source of one matrix, stored plain or in groups."""

    path = Path("model")

    def __init__(self, tensor: torch.Tensor, stored: GroupedMatrix | None = None) -> None:
        self.tensor, self.stored = tensor, stored

    def names(self) -> Iterable[str]:
        return NAMES.values()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def read(self, name: str, rows: slice, out: torch.Tensor) -> None:
        out.copy_(self.tensor[rows])

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        return None if self.stored is None else self.stored.rows(rows)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**31),
    st.sampled_from([4, 8]),
    st.sampled_from([2e-3, 0.02, 1.0, 50.0]),
    st.floats(-3, 3),
    st.sampled_from([16, 32]),
)
def test_no_number_is_further_off_than_the_range_of_its_group_allows(
    seed: int, bits: int, size: float, shift: float, group: int
) -> None:
    made = torch.Generator().manual_seed(seed)
    weight = (torch.randn(6, 96, generator=made) + shift) * size
    matrix = quantize(weight, bits, group)
    assert (matrix.bits, matrix.group_size, matrix.shape) == (bits, group, (6, 96))
    grouped = weight.view(6, -1, group)
    error = (matrix.dequantized() - weight).view(6, -1, group)
    # Four bits: the mean error is no larger than that of the plain cut into 15 steps, about a step over root 12.
    spread = grouped.amax(-1) - grouped.amin(-1) if bits == 4 else 2 * grouped.abs().amax(-1)
    # And what half precision costs scales and offsets; 2**-24 is its smallest number.
    step = spread / (2**bits - 1) + 1e-3 * grouped.abs().amax(-1) + 2**bits * 2**-24
    assert bool((error.square().mean(-1).sqrt() <= 0.5 * step).all())


def test_the_search_beats_cutting_the_range_evenly() -> None:
    weight = drawn(64, 1024)
    grouped = weight.view(64, -1, GROUP)
    low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    evenly = ((grouped - low) / (high - low) * 15).round() / 15 * (high - low) + low
    plain = float((evenly - grouped).square().mean())
    assert float((quantize(weight, 4, GROUP).dequantized() - weight).square().mean()) < 0.9 * plain


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 3.0, -0.25])
def test_a_group_of_one_number_comes_back_as_it_is(bits: int, value: float) -> None:
    found = quantize(torch.full((2, 64), value), bits, 32).dequantized()
    torch.testing.assert_close(found, torch.full((2, 64), value), atol=0, rtol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_the_whole_are_the_whole_of_the_rows(bits: int) -> None:
    weight = drawn(3000, 96)  # several pieces are worked on one after the other
    whole, part = quantize(weight, bits, 32), quantize(weight[1337:2100], bits, 32)
    assert torch.equal(whole.codes[1337:2100], part.codes)
    assert torch.equal(whole.dequantized()[1337:2100], part.dequantized())


@pytest.mark.parametrize("bits", [4, 8])
def test_half_precision_holds_scales_and_offsets(bits: int) -> None:
    matrix = quantize(drawn(8, 64), bits, 32)
    for kept in (matrix.scales, matrix.offsets):
        assert torch.equal(kept.to(torch.float16).to(torch.float32), kept)


def test_float8_is_exact_to_three_bits_of_the_fraction() -> None:
    weight = drawn(16, 64) * torch.logspace(-4, 4, 16).view(-1, 1)
    found = float8(weight)
    large = weight.abs() > weight.abs().amax(1, keepdim=True) / 2**13  # smaller ones are subnormal
    assert float(((found - weight).abs() / weight.abs())[large].max()) <= 2**-4 * 1.001
    assert torch.equal(float8(torch.zeros(2, 8)), torch.zeros(2, 8))


@pytest.mark.parametrize(("columns", "size"), [(576, 32), (48, 16), (80, 16), (50, None)])
def test_groups_that_fit_a_row(columns: int, size: int | None) -> None:
    assert group_size(columns) == size


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ("int8", dict.fromkeys(NAMES, 8) | {"a router": None}),
        ("int4", dict.fromkeys(NAMES, 8) | {"a projection of the MLP": 4, "an expert": 4, "a router": None}),
        ("fp8", dict.fromkeys(NAMES)),
    ],
)
def test_which_matrices_become_how_narrow(quantization: Quantization, bits: dict[str, int | None]) -> None:
    source = QuantizedSource(Tensors(drawn(4, 64)), quantization)
    for what, name in NAMES.items():
        if what != "a norm":
            found = source.grouped(name, slice(0, 4))
            assert (found and found.bits) == bits[what], what


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_what_is_read_is_what_the_quantized_matrix_stands_for(quantization: Quantization) -> None:
    tensor = drawn(4, 64)
    source = QuantizedSource(Tensors(tensor), quantization)
    for what, name in NAMES.items():
        if what == "a norm":
            continue
        out = torch.empty(2, 64)
        source.read(name, slice(1, 3), out)
        kept = source.grouped(name, slice(1, 3))
        if kept is not None:
            assert torch.equal(out, kept.dequantized())
        wide = what == "a router" or (quantization == "fp8" and what in ("the embedding", "the head"))
        assert torch.equal(out, tensor[1:3]) == wide, what


def test_a_norm_is_left_alone() -> None:
    source, out = QuantizedSource(Tensors(drawn(64)), "int4"), torch.empty(64)
    source.read(NAMES["a norm"], slice(0, 64), out)
    assert torch.equal(out, drawn(64))
    assert source.grouped(NAMES["a norm"], slice(0, 64)) is None


@pytest.mark.parametrize(
    ("stored", "quantization", "bits"),
    [
        pytest.param(4, "int8", 4, id="four bits stay where eight are asked for"),
        pytest.param(8, "int8", 8, id="eight bits stay as they are"),
        pytest.param(8, "int4", 4, id="eight bits become four where four are asked for"),
        pytest.param(4, "fp8", 4, id="four bits stay where float8 is asked for"),
    ],
)
def test_what_is_narrow_already(stored: int, quantization: Quantization, bits: int) -> None:
    kept = quantize(drawn(4, 64), stored, 16)
    source = QuantizedSource(Tensors(kept.dequantized(), kept), quantization)
    found = source.grouped(NAMES["a projection of the MLP"], slice(0, 4))
    assert found is not None
    assert found.bits == bits
    assert torch.equal(found.codes, kept.codes) == (stored == bits)


def test_rows_that_no_group_fits_stay_wide() -> None:
    source = QuantizedSource(Tensors(drawn(4, 50)), "int4")
    assert source.grouped(NAMES["a projection of the MLP"], slice(0, 4)) is None
