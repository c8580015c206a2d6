"""Triton kernels that go over rows: norms, rotary embedding, writing keys and values into the cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tidegate_engine.kernels import reference
from tidegate_engine.kernels.interface import KVScales


@triton.jit
def _norm_rows(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    heads,
    width,
    epsilon,
    x_stride,
    x_head_stride,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + (row // heads) * x_stride + (row % heads) * x_head_stride + column, mask=inside, other=0.0).to(
        tl.float32
    )
    if ADD:
        total = x + tl.load(residual_ptr + row * width + column, mask=inside, other=0.0).to(tl.float32)
        rounded = total.to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + row * width + column, rounded, mask=inside)
        x = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + epsilon)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + column, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """See Kernels.rms_norm; `x` is [T, H] or a view [T, heads, D]."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    width, heads = x.shape[-1], x.shape[1] if x.dim() == 3 else 1
    head_stride = x.stride(1) if x.dim() == 3 else 0
    rows = x.shape[0] * heads
    if rows:
        block = triton.next_power_of_2(width)
        _norm_rows[(rows,)](x, x, weight, out, heads, width, epsilon, x.stride(0), head_stride, ADD=False, BLOCK=block)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """See Kernels.add_rms_norm; `x` is [T, H], `residual` contiguous and overwritten with the sum."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, width = x.shape
    if rows:
        block = triton.next_power_of_2(width)
        _norm_rows[(rows,)](x, residual, weight, out, 1, width, epsilon, x.stride(0), 0, ADD=True, BLOCK=block)
    return out, residual


@triton.jit
def _rotate_rows(
    x_ptr, cos_ptr, sin_ptr, heads, half, x_stride, x_head_stride, HEADS: tl.constexpr, HALF: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, HEADS), tl.arange(0, HALF)
    inside = (head < heads)[:, None] & (column < half)[None, :]
    cos = tl.load(cos_ptr + token * half + column, mask=column < half, other=0.0)[None, :]
    sin = tl.load(sin_ptr + token * half + column, mask=column < half, other=0.0)[None, :]
    first_ptr = x_ptr + token * x_stride + head[:, None] * x_head_stride + column[None, :]
    first = tl.load(first_ptr, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(first_ptr + half, mask=inside, other=0.0).to(tl.float32)
    kind = x_ptr.dtype.element_ty
    tl.store(first_ptr, (first * cos - second * sin).to(kind), mask=inside)
    tl.store(first_ptr + half, (second * cos + first * sin).to(kind), mask=inside)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """See Kernels.rotate; `x` may be a view whose last dimension is contiguous."""
    tokens, heads, width = x.shape
    if tokens:
        blocks = {"HEADS": triton.next_power_of_2(heads), "HALF": triton.next_power_of_2(width // 2)}
        _rotate_rows[(tokens,)](x, cos, sin, heads, width // 2, x.stride(0), x.stride(1), **blocks)


@triton.jit
def _write_rows(
    key_ptr,
    value_ptr,
    key_cache_ptr,
    value_cache_ptr,
    slots_ptr,
    heads,
    width,
    block_size,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = (head < heads) & (column < width)
    key = tl.load(key_ptr + token * key_stride + head * key_head_stride + column, mask=inside, other=0.0)
    value = tl.load(value_ptr + token * value_stride + head * value_head_stride + column, mask=inside, other=0.0)
    row = ((slot // block_size) * heads + head) * block_size + slot % block_size
    tl.store(key_cache_ptr + row * width + column, key, mask=inside)
    tl.store(value_cache_ptr + row * width + column, value, mask=inside)


def write_kv(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, scales: KVScales | None = None
) -> None:
    """See WriteKV; keys and values may be views whose last dimension is contiguous."""
    tokens, heads, width = key.shape
    if scales is not None:
        reference.write_kv(key, value, key_cache, value_cache, slots, scales)
    elif tokens:
        _write_rows[(tokens,)](
            key,
            value,
            key_cache,
            value_cache,
            slots,
            heads,
            width,
            key_cache.shape[2],
            key.stride(0),
            key.stride(1),
            value.stride(0),
            value.stride(1),
            HEADS=triton.next_power_of_2(heads),
            WIDTH=triton.next_power_of_2(width),
        )
