"""Triton kernels of paged attention.

A tile's rows are pairs (token, query head of one key head): the heads that share keys read them once, and groups that
are no power of two (3 in SmolLM2) waste only the rows that are left over. Prompts: tiles with a running softmax as in
FlashAttention (Dao, 2023). Decoding: the context is split among programs, as in Flash-Decoding, and then put together.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tidegate_engine.kernels import reference
from tidegate_engine.kernels.interface import Attention, AttentionSpec, KVScales, Paging

_LOG2_E = 1.4426950408889634


@triton.jit
def _attend_range(
    query,
    positions,
    key_ptr,
    value_ptr,
    table_ptr,
    start,
    stop,
    scale,
    width,
    block_size,
    block_stride,
    window,
    softcap,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """Rows of queries over keys start..stop of one request: weighted sum, largest score, and sum of weights."""
    largest = tl.full((ROWS,), -1e38, tl.float32)  # finite: -inf minus -inf is not a number
    total = tl.zeros((ROWS,), tl.float32)
    out = tl.zeros((ROWS, WIDTH), tl.float32)
    column = tl.arange(0, WIDTH)
    for first in range(start, stop, KEYS):
        at = first + tl.arange(0, KEYS)
        there = at < stop
        block = tl.load(table_ptr + at // block_size, mask=there, other=0).to(tl.int64)
        row = block * block_stride + (at % block_size) * width
        inside = there[:, None] & (column < width)[None, :]
        key = tl.load(key_ptr + row[:, None] + column[None, :], mask=inside, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if CAPPED:
            # softcap * tanh(scores / softcap) by exp2, both in powers of two; 2.885… is 2 / ln 2.
            scores = softcap * (1.0 - 2.0 / (tl.exp2(scores * (2.8853900817779268 / softcap)) + 1.0))
        seen = there[None, :] & (at[None, :] <= positions[:, None]) & (at[None, :] > positions[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(largest - higher)
        value = tl.load(value_ptr + row[:, None] + column[None, :], mask=inside, other=0.0)
        out = out * shrink[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        total = total * shrink + tl.sum(weights, axis=1)
        largest = higher
    return out, largest, total


@triton.jit
def _prefill(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    starts_ptr,
    lengths_ptr,
    tables_ptr,
    scale,
    group,
    width,
    block_size,
    query_stride,
    query_head_stride,
    out_stride,
    block_stride,
    table_stride,
    window,
    softcap,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAPPED: tl.constexpr,
):
    tile, kv_head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(starts_ptr + request)
    count = tl.load(starts_ptr + request + 1) - start
    if tile * TOKENS >= count:
        return
    length = tl.load(lengths_ptr + request)
    row, column = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    token = tile * TOKENS + row // group
    head = kv_head * group + row % group
    mine = (row < TOKENS * group) & (token < count)
    inside = mine[:, None] & (column < width)[None, :]
    at = (start + token).to(tl.int64)
    query = tl.load(
        query_ptr + at[:, None] * query_stride + head[:, None] * query_head_stride + column[None, :],
        mask=inside,
        other=0.0,
    )
    head_offset = kv_head.to(tl.int64) * block_size * width
    out, _, total = _attend_range(
        query,
        length - count + token,
        key_ptr + head_offset,
        value_ptr + head_offset,
        tables_ptr + request.to(tl.int64) * table_stride,
        tl.maximum(0, length - count + tile * TOKENS + 1 - window),
        tl.minimum(length, length - count + (tile + 1) * TOKENS),
        scale,
        width,
        block_size,
        block_stride,
        window,
        softcap,
        ROWS,
        KEYS,
        WIDTH,
        CAPPED,
    )
    out = out / tl.where(total > 0, total, 1.0)[:, None]
    to = out_ptr + at[:, None] * out_stride + head[:, None] * width + column[None, :]
    tl.store(to, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _decode_part(
    query_ptr,
    key_ptr,
    value_ptr,
    parts_ptr,
    largest_ptr,
    totals_ptr,
    lengths_ptr,
    tables_ptr,
    scale,
    group,
    width,
    block_size,
    query_stride,
    query_head_stride,
    block_stride,
    table_stride,
    part_length,
    window,
    softcap,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAPPED: tl.constexpr,
):
    part, kv_head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    parts, kv_heads = tl.num_programs(0), tl.num_programs(1)
    length = tl.load(lengths_ptr + request)
    row, column = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head = kv_head * group + row
    mine = row < group
    inside = mine[:, None] & (column < width)[None, :]
    query = tl.load(
        query_ptr + request.to(tl.int64) * query_stride + head[:, None] * query_head_stride + column[None, :],
        mask=inside,
        other=0.0,
    )
    head_offset = kv_head.to(tl.int64) * block_size * width
    out, largest, total = _attend_range(
        query,
        length - 1 + row * 0,
        key_ptr + head_offset,
        value_ptr + head_offset,
        tables_ptr + request.to(tl.int64) * table_stride,
        tl.maximum(part * part_length, length - window),
        tl.minimum(length, (part + 1) * part_length),
        scale,
        width,
        block_size,
        block_stride,
        window,
        softcap,
        ROWS,
        KEYS,
        WIDTH,
        CAPPED,
    )
    to = (request.to(tl.int64) * kv_heads * group + head) * parts + part
    tl.store(parts_ptr + to[:, None] * width + column[None, :], out, mask=inside)
    tl.store(largest_ptr + to, largest, mask=mine)
    tl.store(totals_ptr + to, total, mask=mine)


@triton.jit
def _join_parts(parts_ptr, largest_ptr, totals_ptr, out_ptr, parts, width, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part, column = tl.arange(0, PARTS), tl.arange(0, WIDTH)
    there = part < parts
    largest = tl.load(largest_ptr + row * parts + part, mask=there, other=-1e38)
    totals = tl.load(totals_ptr + row * parts + part, mask=there, other=0.0)
    shrink = tl.exp2(largest - tl.max(largest, axis=0))
    inside = there[:, None] & (column < width)[None, :]
    outs = tl.load(parts_ptr + (row * parts + part)[:, None] * width + column[None, :], mask=inside, other=0.0)
    joined = tl.sum(outs * shrink[:, None], axis=0) / tl.sum(totals * shrink, axis=0)
    tl.store(out_ptr + row * width + column, joined.to(out_ptr.dtype.element_ty), mask=column < width)


_EVERYTHING = 2**30
"""A window that no context is longer than."""


def plan_attention(paging: Paging, spec: AttentionSpec) -> Attention:
    """See Kernels.plan_attention; a step of decoding alone splits its contexts, any other goes by tiles."""
    attend = _attend_decode if paging.max_query_len == 1 else _attend_prefill

    def planned(query: Tensor, key_cache: Tensor, value_cache: Tensor, scales: KVScales | None = None) -> Tensor:
        if scales is not None:
            return reference.plan_attention(paging, spec)(query, key_cache, value_cache, scales)
        return attend(paging, spec, query, key_cache, value_cache)

    return planned


def _parameters(spec: AttentionSpec) -> tuple[float, int, float, bool]:
    """Scale, window, softcap, and whether scores are capped. Scores in powers of two are what the hardware computes."""
    window = spec.window or _EVERYTHING
    if spec.softcap is None:
        return spec.scale * _LOG2_E, window, 1.0, False
    return spec.scale * _LOG2_E, window, spec.softcap * _LOG2_E, True


def _attend_prefill(
    paging: Paging, spec: AttentionSpec, query: Tensor, key_cache: Tensor, value_cache: Tensor
) -> Tensor:
    heads, width = query.shape[1:]
    group = heads // key_cache.shape[1]
    rows = max(triton.next_power_of_2(group), 16 if paging.max_query_len * group <= 16 else 64)
    tokens = rows // group
    scale, window, softcap, capped = _parameters(spec)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    grid = (triton.cdiv(paging.max_query_len, tokens), key_cache.shape[1], len(paging.context_lens))
    _prefill[grid](
        query,
        key_cache,
        value_cache,
        out,
        paging.query_start,
        paging.context_lens,
        paging.block_tables,
        scale,
        group,
        width,
        paging.block_size,
        query.stride(0),
        query.stride(1),
        out.stride(0),
        key_cache.stride(0),
        paging.block_tables.stride(0),
        window,
        softcap,
        TOKENS=tokens,
        ROWS=rows,
        KEYS=32,
        WIDTH=triton.next_power_of_2(width),
        CAPPED=capped,
    )
    return out


def _attend_decode(
    paging: Paging, spec: AttentionSpec, query: Tensor, key_cache: Tensor, value_cache: Tensor
) -> Tensor:
    heads, width = query.shape[1:]
    kv_heads = key_cache.shape[1]
    requests = len(paging.context_lens)
    scale, window, softcap, capped = _parameters(spec)
    parts, part_length = split_context(paging.max_context_len, requests * kv_heads)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    partial = torch.empty((requests, heads, parts, width), dtype=torch.float32, device=query.device)
    largest, totals = torch.empty((2, requests, heads, parts), dtype=torch.float32, device=query.device)
    _decode_part[(parts, kv_heads, requests)](
        query,
        key_cache,
        value_cache,
        partial,
        largest,
        totals,
        paging.context_lens,
        paging.block_tables,
        scale,
        heads // kv_heads,
        width,
        paging.block_size,
        query.stride(0),
        query.stride(1),
        key_cache.stride(0),
        paging.block_tables.stride(0),
        part_length,
        window,
        softcap,
        ROWS=max(16, triton.next_power_of_2(heads // kv_heads)),
        KEYS=32,
        WIDTH=triton.next_power_of_2(width),
        CAPPED=capped,
    )
    width_block = triton.next_power_of_2(width)
    _join_parts[(requests * heads,)](
        partial, largest, totals, out, parts, width, PARTS=triton.next_power_of_2(parts), WIDTH=width_block
    )
    return out


def split_context(longest: int, tiles: int, programs: int = 512, least: int = 64) -> tuple[int, int]:
    """Into how many parts, and of how many tokens, contexts are split so that about `programs` programs are busy."""
    wanted = max(1, min(programs // max(tiles, 1), longest // least, 64))
    part_length = triton.cdiv(triton.cdiv(longest, wanted), 32) * 32
    return triton.cdiv(longest, part_length), part_length
