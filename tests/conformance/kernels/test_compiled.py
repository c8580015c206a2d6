"""The compiled kernels: what the reference computes, and the same bits whatever shares the batch, on any processor."""

from __future__ import annotations

import pytest
import torch
from compiled_kernels import skip_without_them, team_of
from kernel_cases import STEPS, Step
from tidegate_engine.kernels import reference
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import AttentionSpec, Paging
from tidegate_engine.kernels.native import PackedLinear, PackedMatrix, Team, native_kernels
from tidegate_engine.kernels.native_library import Isa, available
from tidegate_engine.kernels.native_speed import choose_fastest

BLOCK = 16


@pytest.fixture(scope="module")
def team() -> Team:
    return team_of(2)


def _matrix(rows: int, columns: int, group: int, bits: int) -> GroupedMatrix:
    made = torch.Generator().manual_seed(rows + columns + group + bits)
    codes = torch.randint(0, 2**bits, (rows, columns), generator=made, dtype=torch.uint8)
    scales = (torch.rand(rows, columns // group, generator=made) * 0.02).half().float()
    return GroupedMatrix(codes, scales, scales * -(2 ** (bits - 1)), bits)


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """Activations as the kernels see them: 8 bits in groups of 32."""
    grouped = x.view(len(x), -1, 32)
    scale = grouped.abs().amax(-1, keepdim=True) / 127
    return ((grouped / scale).round() * scale).nan_to_num(0).view(x.shape)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [16, 32, 64, 192])
@pytest.mark.parametrize("rows", [1, 5, 8, 37])
def test_a_linear_layer_is_exact_but_for_the_activations_rounding(team: Team, bits: int, group: int, rows: int) -> None:
    matrix = _matrix(100, 192, group, bits)
    bias = torch.randn(100)
    x = torch.randn(rows, 192) * torch.logspace(-3, 3, 192)
    x[0, :32] = 0
    found = PackedLinear(PackedMatrix(team, matrix), bias)(x)
    wanted = reference.linear(matrix, bias)(_rounded(x))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=float(wanted.abs().max()) * 1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_at_their_ends_saturate_nowhere(team: Team, bits: int) -> None:
    largest = 2**bits - 1
    ones = torch.ones(16, 18)
    matrix = GroupedMatrix(torch.full((16, 576), largest, dtype=torch.uint8), ones, ones * 0, bits)
    for isa in available():
        team.use(isa)
        assert PackedLinear(PackedMatrix(team, matrix), None)(torch.ones(1, 576)).tolist() == [[576.0 * largest] * 16]


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_packed_matrix_come_back(team: Team, bits: int) -> None:
    matrix = _matrix(100, 192, 32, bits)
    wanted = torch.tensor([99, 0, 17, 17])
    found = PackedMatrix(team, matrix).rows(wanted)
    torch.testing.assert_close(found, matrix.dequantized()[wanted], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1e4])
def test_scales_of_any_size_keep_their_digits(team: Team, scale: float) -> None:
    matrix = _matrix(16, 64, 32, 4)
    matrix = GroupedMatrix(matrix.codes, matrix.scales * scale, matrix.offsets * scale, 4)
    found = PackedMatrix(team, matrix).rows(torch.arange(16))
    torch.testing.assert_close(found, matrix.dequantized(), rtol=1e-3, atol=scale * 1e-5)


def test_no_row_depends_on_the_others_nor_on_the_processor(team: Team) -> None:
    layer = PackedLinear(PackedMatrix(team, _matrix(100, 192, 32, 4)), None)
    x = torch.randn(37, 192)
    team.use(available()[-1])
    whole = layer(x)
    for isa in available():
        team.use(isa)
        for start, stop in ((0, 37), (0, 1), (3, 8), (10, 18), (20, 37)):
            assert torch.equal(layer(x[start:stop]), whole[start:stop]), (isa, start, stop)


def _attended(step: Step, isa: Isa) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention by the compiled kernels and by the reference, and which row belongs to which request."""
    made = torch.Generator().manual_seed(sum(step.context))
    team = team_of(2)
    team.use(isa)
    kernels = native_kernels(team, "")
    needed = [-(-length // BLOCK) for length in step.context]
    order = torch.randperm(sum(needed) + 2, generator=made).tolist()
    shape = (len(order), step.kv_heads, BLOCK, step.head_dim)
    caches = [torch.full(shape, float("nan"), dtype=torch.float16) for _ in range(2)]  # unused memory is poisoned
    plain = [torch.zeros(shape) for _ in range(2)]
    tables = torch.zeros(len(needed), max(needed), dtype=torch.int32)
    for row, (count, length) in enumerate(zip(needed, step.context, strict=True)):
        mine, order = order[:count], order[count:]
        tables[row, :count] = torch.tensor(mine)
        written = torch.randn(2, length, step.kv_heads, step.head_dim, generator=made).half().float()
        slots = torch.tensor([mine[at // BLOCK] * BLOCK + at % BLOCK for at in range(length)])
        kernels.write_kv(*written, *caches, slots)
        reference.write_kv(*written, *plain, slots)
    starts = torch.tensor([0, *torch.tensor(step.new).cumsum(0).tolist()], dtype=torch.int32)
    lengths = torch.tensor(step.context, dtype=torch.int32)
    paging = Paging(starts, lengths, tables, max(step.new), max(step.context), BLOCK)
    fused = torch.randn(sum(step.new), step.heads + 2 * step.kv_heads, step.head_dim, generator=made)
    spec = AttentionSpec(step.head_dim**-0.5, step.window, step.softcap)
    query = fused[:, : step.heads]
    found = kernels.plan_attention(paging, spec)(query, *caches)
    return found, reference.plan_attention(paging, spec)(query, *plain), starts


@pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in STEPS.items()])
def test_attention(step: Step) -> None:
    skip_without_them()
    results = []
    for isa in available():
        found, wanted, _ = _attended(step, isa)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
        results.append(found)
    assert all(torch.equal(result, results[0]) for result in results)


def test_numbers_beyond_half_precision_stay_finite() -> None:
    kernels = native_kernels(team_of(1), "")
    caches = [torch.zeros(1, 1, BLOCK, 16, dtype=torch.float16) for _ in range(2)]
    kernels.write_kv(torch.full((1, 1, 16), 1e6), torch.full((1, 1, 16), -1e6), *caches, torch.tensor([0]))
    assert float(caches[0].max()) == 65504.0
    assert float(caches[1].min()) == -65504.0


def test_the_faster_instructions_are_chosen_and_both_are_told(team: Team) -> None:
    said = choose_fastest(team)
    assert [name for name in ("AVX2", "AVX512_VNNI") if name in said] == [isa.name for isa in available()]
