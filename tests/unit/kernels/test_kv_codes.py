"""A cache of eight bits: codes with a scale for each token and head."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import STEPS, Step, kernel_set
from tidegate_engine.kernels.interface import AttentionSpec, KVScales, Paging
from tidegate_engine.kernels.kv_codes import LARGEST, decode, encode
from tidegate_engine.kernels.reference import REFERENCE
from tidegate_engine.model.kv import KVCache, block_bytes

CODES = [pytest.param(torch.int8, id="int8"), pytest.param(torch.float8_e4m3fn, id="float8")]
ERROR = {torch.int8: 0.5 / 127, torch.float8_e4m3fn: 16 / 448}
"""The largest error, as a share of a vector's largest element: half a step, where steps are widest."""


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def cache(dtype: torch.dtype, step: Step) -> KVCache:
    return KVCache.allocate(40, step.block_size, 1, step.kv_heads, step.head_dim, dtype, "cpu")


def filled(dtype: torch.dtype, step: Step) -> tuple[KVCache, Paging]:
    """A step's requests with their whole contexts written."""
    kv, needed = cache(dtype, step), [-(-length // step.block_size) for length in step.context]
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    tables = torch.zeros(len(needed), max(needed), dtype=torch.int32)
    taken = 0
    for row, (blocks, length) in enumerate(zip(needed, step.context, strict=True)):
        tables[row, :blocks] = order[taken : taken + blocks]
        taken += blocks
        at = torch.arange(length)
        slots = tables[row, at // step.block_size].to(torch.int64) * step.block_size + at % step.block_size
        key, value = drawn(2, length, step.kv_heads, step.head_dim) * (row + 0.5)
        REFERENCE.write_kv(key, value, kv.keys[0], kv.values[0], slots, kv.scales_of(0))
    starts = torch.tensor([0, *torch.tensor(step.new).cumsum(0).tolist()], dtype=torch.int32)
    lengths = torch.tensor(step.context, dtype=torch.int32)
    return kv, Paging(starts, lengths, tables, max(step.new), max(step.context), step.block_size)


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4], ids=["tiny", "usual", "huge"])
def test_codes_stand_for_their_vectors(dtype: torch.dtype, size: float) -> None:
    x = drawn(5, 3, 64) * size
    codes, scales = encode(x, dtype)
    assert (codes.dtype, codes.shape, scales.shape) == (dtype, x.shape, (5, 3))
    error = (decode(codes, scales, torch.float32) - x).abs().amax(dim=-1) / x.abs().amax(dim=-1)
    assert float(error.max()) <= ERROR[dtype] * 1.001


@pytest.mark.parametrize("dtype", CODES)
def test_a_vector_of_zeros_comes_back_as_zeros(dtype: torch.dtype) -> None:
    codes, scales = encode(torch.zeros(2, 8), dtype)
    assert torch.equal(decode(codes, scales, torch.float32), torch.zeros(2, 8))


@pytest.mark.parametrize("dtype", CODES)
def test_a_vectors_code_does_not_depend_on_its_neighbours(dtype: torch.dtype) -> None:
    x = drawn(6, 2, 16)
    together, alone = encode(x, dtype), encode(x[3:4], dtype)
    assert torch.equal(together[0][3:4].view(torch.uint8), alone[0].view(torch.uint8))
    assert torch.equal(together[1][3:4], alone[1])


@pytest.mark.parametrize("dtype", CODES)
def test_writing_touches_nothing_else(dtype: torch.dtype) -> None:
    step = STEPS["four heads to a key"]
    kv, slots = cache(dtype, step), torch.tensor([5, 2])
    key, value = drawn(2, 2, step.kv_heads, step.head_dim)
    REFERENCE.write_kv(key, value, kv.keys[0], kv.values[0], slots, kv.scales_of(0))
    scales = kv.scales_of(0)
    assert scales is not None
    for scale, codes, wanted in ((scales.key, kv.keys[0], key), (scales.value, kv.values[0], value)):
        numbers = decode(codes, scale, torch.float32).transpose(1, 2).flatten(0, 1)
        torch.testing.assert_close(numbers[slots], wanted, atol=0.15, rtol=0)
        untouched = torch.ones(len(numbers), dtype=torch.bool)
        untouched[slots] = False
        assert not numbers[untouched].any()


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in STEPS.items()])
def test_attention_over_codes_is_attention_over_the_numbers_they_stand_for(step: Step, dtype: torch.dtype) -> None:
    kv, paging = filled(dtype, step)
    scales = kv.scales_of(0)
    assert isinstance(scales, KVScales)
    query = drawn(sum(step.new), step.heads, step.head_dim)
    numbers = [decode(kv.keys[0], scales.key, torch.float32), decode(kv.values[0], scales.value, torch.float32)]
    wanted = REFERENCE.plan_attention(paging, AttentionSpec(0.25))(query, *numbers)
    for kernels in (REFERENCE, kernel_set("cpu", "cpu")):
        attend = kernels.plan_attention(paging, AttentionSpec(0.25))
        torch.testing.assert_close(attend(query, kv.keys[0], kv.values[0], scales), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_cache_of_narrower_numbers_than_the_model_computes_in(dtype: torch.dtype) -> None:
    step = STEPS["prompts and decoding in one step"]
    kv, paging = filled(dtype, step)
    query = drawn(sum(step.new), step.heads, step.head_dim)
    numbers = [kv.keys[0].to(torch.float32), kv.values[0].to(torch.float32)]
    wanted = REFERENCE.plan_attention(paging, AttentionSpec(0.25))(query, *numbers)
    for kernels in (REFERENCE, kernel_set("cpu", "cpu")):
        attend = kernels.plan_attention(paging, AttentionSpec(0.25))
        torch.testing.assert_close(attend(query, kv.keys[0], kv.values[0]), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float32, 4.0), (torch.float16, 2.0), (torch.int8, 1 + 4 / 64), (torch.float8_e4m3fn, 1 + 4 / 64)],
    ids=str,
)
def test_what_an_element_takes_with_its_share_of_the_scale(dtype: torch.dtype, size: float) -> None:
    kv = KVCache.allocate(3, 16, 2, 3, 64, dtype, "cpu")
    held = [*kv.keys, *kv.values]
    for scale in kv.scales or []:
        held += [scale.key, scale.value]
    assert sum(part.numel() * part.itemsize for part in held) == 3 * block_bytes(16, 2, 3, 64, dtype)
    assert block_bytes(16, 2, 3, 64, dtype) == 2 * 2 * 3 * 16 * 64 * size


def test_only_codes_have_scales() -> None:
    assert KVCache.allocate(1, 4, 1, 1, 8, torch.float16, "cpu").scales_of(0) is None
    assert set(LARGEST) == {torch.int8, torch.float8_e4m3fn}
