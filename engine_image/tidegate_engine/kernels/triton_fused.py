"""Triton kernels of the small steps between large ones, each fused into one pass over its data."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tidegate_engine.kernels.interface import HeadNorms, KVScales


@triton.jit
def _normalised(first, second, weight_ptr, head_offsets, column, inside, width, epsilon, kind: tl.constexpr):
    """Both halves of heads over their root mean square, times weights, rounded as if they had been written out."""
    squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
    over = tl.rsqrt(squares / width + epsilon)[:, None]
    place = weight_ptr + head_offsets + column[None, :]
    first = first * over * tl.load(place, mask=inside, other=0.0).to(tl.float32)
    second = second * over * tl.load(place + width // 2, mask=inside, other=0.0).to(tl.float32)
    return first.to(kind).to(tl.float32), second.to(kind).to(tl.float32)


@triton.jit
def _to_even(x):
    """The nearest whole number, halves to the even one: adding 1.5 * 2**23 leaves no bits for the rest."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _codes(x, scale, kind: tl.constexpr):
    """What a cache of type `kind` holds of `x` under `scale`, by rows."""
    codes = x / tl.where(scale > 0, scale, 1.0)[:, None]
    if kind == tl.int8:
        codes = _to_even(codes)
    return codes.to(kind)


@triton.jit
def _rotate_and_write(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    query_norm_ptr,
    key_norm_ptr,
    key_cache_ptr,
    value_cache_ptr,
    key_scale_ptr,
    value_scale_ptr,
    slots_ptr,
    epsilon,
    token_stride,
    largest_code,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    QUERY_ROWS: tl.constexpr,
    KEY_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    NORMED: tl.constexpr,
    SCALED: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    half: tl.constexpr = WIDTH // 2
    column = tl.arange(0, COLUMNS)
    within = column < half
    cos = tl.load(cos_ptr + token * half + column, mask=within, other=0.0)[None, :]
    sin = tl.load(sin_ptr + token * half + column, mask=within, other=0.0)[None, :]
    kind = qkv_ptr.dtype.element_ty
    row = tl.arange(0, QUERY_ROWS)
    inside = (row < QUERIES)[:, None] & within[None, :]
    query = qkv_ptr + token * token_stride + row[:, None] * WIDTH + column[None, :]
    first = tl.load(query, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(query + half, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        first, second = _normalised(
            first, second, query_norm_ptr, row[:, None] * 0, column, inside, WIDTH, epsilon, kind
        )
    tl.store(query, (first * cos - second * sin).to(kind), mask=inside)
    tl.store(query + half, (second * cos + first * sin).to(kind), mask=inside)

    head = tl.arange(0, KEY_ROWS)
    inside = (head < KEYS)[:, None] & within[None, :]
    key = qkv_ptr + token * token_stride + (QUERIES + head[:, None]) * WIDTH + column[None, :]
    first = tl.load(key, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(key + half, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        first, second = _normalised(
            first, second, key_norm_ptr, head[:, None] * 0, column, inside, WIDTH, epsilon, kind
        )
    turned_first = (first * cos - second * sin).to(kind).to(tl.float32)
    turned_second = (second * cos + first * sin).to(kind).to(tl.float32)
    value = key + KEYS * WIDTH
    value_first = tl.load(value, mask=inside, other=0.0).to(tl.float32)
    value_second = tl.load(value + half, mask=inside, other=0.0).to(tl.float32)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    cache_row = ((slot // BLOCK_SIZE) * KEYS + head) * BLOCK_SIZE + slot % BLOCK_SIZE
    place = cache_row[:, None] * WIDTH + column[None, :]
    stored = key_cache_ptr.dtype.element_ty
    if SCALED:
        key_most = tl.maximum(tl.max(tl.abs(turned_first), axis=1), tl.max(tl.abs(turned_second), axis=1))
        value_most = tl.maximum(tl.max(tl.abs(value_first), axis=1), tl.max(tl.abs(value_second), axis=1))
        key_scale, value_scale = key_most / largest_code, value_most / largest_code
        tl.store(key_scale_ptr + cache_row, key_scale, mask=head < KEYS)
        tl.store(value_scale_ptr + cache_row, value_scale, mask=head < KEYS)
        tl.store(key_cache_ptr + place, _codes(turned_first, key_scale, stored), mask=inside)
        tl.store(key_cache_ptr + place + half, _codes(turned_second, key_scale, stored), mask=inside)
        tl.store(value_cache_ptr + place, _codes(value_first, value_scale, stored), mask=inside)
        tl.store(value_cache_ptr + place + half, _codes(value_second, value_scale, stored), mask=inside)
    else:
        tl.store(key_cache_ptr + place, turned_first.to(stored), mask=inside)
        tl.store(key_cache_ptr + place + half, turned_second.to(stored), mask=inside)
        tl.store(value_cache_ptr + place, value_first.to(stored), mask=inside)
        tl.store(value_cache_ptr + place + half, value_second.to(stored), mask=inside)


def rotate_and_write(
    qkv: Tensor,
    angles: tuple[Tensor, Tensor],
    norms: HeadNorms | None,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    scales: KVScales | None = None,
) -> Tensor:
    """See RotateAndWrite; heads of `qkv` are contiguous, one upon the other."""
    tokens, heads, width = qkv.shape
    keys, block_size = key_cache.shape[1], key_cache.shape[2]
    queries = heads - 2 * keys
    codes = key_cache.dtype
    if tokens:
        _rotate_and_write[(tokens,)](
            qkv,
            angles[0],
            angles[1],
            norms.query if norms else qkv,
            norms.key if norms else qkv,
            key_cache,
            value_cache,
            scales.key if scales else angles[0],
            scales.value if scales else angles[0],
            slots,
            norms.epsilon if norms else 0.0,
            qkv.stride(0),
            127.0 if codes == torch.int8 else torch.finfo(codes).max,
            QUERIES=queries,
            KEYS=keys,
            WIDTH=width,
            BLOCK_SIZE=block_size,
            QUERY_ROWS=triton.next_power_of_2(queries),
            KEY_ROWS=triton.next_power_of_2(keys),
            COLUMNS=triton.next_power_of_2(width // 2),
            NORMED=norms is not None,
            SCALED=scales is not None,
        )
    return qkv[:, :queries]


@triton.jit
def _silu_and_mul(x_ptr, out_ptr, width, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride + width + column, mask=inside, other=0.0).to(tl.float32)
    silu = gate / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * width + column, (silu * up).to(out_ptr.dtype.element_ty), mask=inside)


def silu_and_mul(x: Tensor) -> Tensor:
    """See Kernels.silu_and_mul."""
    rows, width = x.shape[0], x.shape[1] // 2
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    if rows:
        block = min(1024, triton.next_power_of_2(width))
        _silu_and_mul[(rows, triton.cdiv(width, block))](x, out, width, x.stride(0), BLOCK=block)
    return out
