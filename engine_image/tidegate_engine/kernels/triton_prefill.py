"""Paged attention of prompts in Triton: tiles with a running softmax, as in FlashAttention-2 (Dao, 2023)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from tidegate_engine.kernels.interface import KVScales, Paging
from tidegate_engine.kernels.triton_softmax import attend_range
from tidegate_engine.kernels.triton_tiles import Scores, Tile


@triton.jit
def _prefill(
    query_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    out_ptr,
    starts_ptr,
    lengths_ptr,
    tables_ptr,
    scale,
    query_stride,
    query_head_stride,
    out_stride,
    block_stride,
    scale_block_stride,
    table_stride,
    window,
    softcap,
    shorter,
    GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SCALED: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    # The last tiles of a prompt see the most keys: they begin first.
    tile, kv_head, request = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(starts_ptr + request)
    count = tl.load(starts_ptr + request + 1) - start
    if (tile * TOKENS >= count) | (count <= shorter):
        return
    before = tl.load(lengths_ptr + request) - count  # tokens of this request that earlier steps have computed
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    token = tile * TOKENS + row // GROUP
    head = kv_head * GROUP + row % GROUP
    mine = (row < TOKENS * GROUP) & (token < count)
    inside = mine[:, None] & (column < WIDTH)[None, :]
    at = (start + token).to(tl.int64)
    query_place = at[:, None] * query_stride + head[:, None] * query_head_stride + column[None, :]
    query = tl.load(query_ptr + query_place, mask=inside, other=0.0)
    head_offset = kv_head.to(tl.int64) * BLOCK_SIZE * WIDTH
    scale_offset = kv_head.to(tl.int64) * BLOCK_SIZE
    table_ptr = tables_ptr + request.to(tl.int64) * table_stride
    out = tl.zeros((ROWS, COLUMNS), tl.float32)
    largest = tl.full((ROWS,), -1e38, tl.float32)  # finite: -inf minus -inf is not a number
    total = tl.zeros((ROWS,), tl.float32)
    # Every row of the tile sees the keys up to its first token, if there is no window: those need no mask.
    if WINDOWED:
        first = tl.maximum(0, before + tile * TOKENS + 1 - window)
        whole = first
    else:
        first = 0
        whole = (before + tile * TOKENS + 1) // KEYS * KEYS
    stop = before + tl.minimum(count, (tile + 1) * TOKENS)
    out, largest, total = attend_range(
        query,
        before + token,
        out,
        largest,
        total,
        key_ptr + head_offset,
        value_ptr + head_offset,
        key_scale_ptr + scale_offset,
        value_scale_ptr + scale_offset,
        table_ptr,
        first,
        whole,
        scale,
        block_stride,
        scale_block_stride,
        window,
        softcap,
        False,
        SCALED,
        WINDOWED,
        CAPPED,
        KEYS,
        WIDTH,
        COLUMNS,
        BLOCK_SIZE,
    )
    out, largest, total = attend_range(
        query,
        before + token,
        out,
        largest,
        total,
        key_ptr + head_offset,
        value_ptr + head_offset,
        key_scale_ptr + scale_offset,
        value_scale_ptr + scale_offset,
        table_ptr,
        whole,
        stop,
        scale,
        block_stride,
        scale_block_stride,
        window,
        softcap,
        True,
        SCALED,
        WINDOWED,
        CAPPED,
        KEYS,
        WIDTH,
        COLUMNS,
        BLOCK_SIZE,
    )
    out = out / tl.where(total > 0, total, 1.0)[:, None]
    to = out_ptr + at[:, None] * out_stride + head[:, None] * WIDTH + column[None, :]
    tl.store(to, out.to(out_ptr.dtype.element_ty), mask=inside)


def attend_long(
    paging: Paging,
    scores: Scores,
    tile: Tile,
    shorter: int,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    scales: KVScales | None,
    out: Tensor,
) -> None:
    """Into `out` [T, Hq, D], the rows of requests with more than `shorter` new tokens."""
    heads, width = query.shape[1:]
    kv_heads = key_cache.shape[1]
    group = heads // kv_heads
    rows = max(triton.next_power_of_2(group), tile.rows)
    tokens = rows // group
    key_scale, value_scale = (scales.key, scales.value) if scales else (key_cache, value_cache)
    grid = (triton.cdiv(paging.max_query_len, tokens), kv_heads, len(paging.context_lens))
    _prefill[grid](
        query,
        key_cache,
        value_cache,
        key_scale,
        value_scale,
        out,
        paging.query_start,
        paging.context_lens,
        paging.block_tables,
        scores.scale,
        query.stride(0),
        query.stride(1),
        out.stride(0),
        key_cache.stride(0),
        key_scale.stride(0),
        paging.block_tables.stride(0),
        scores.window or 0,
        scores.softcap or 0.0,
        shorter,
        GROUP=group,
        TOKENS=tokens,
        ROWS=rows,
        KEYS=tile.keys,
        WIDTH=width,
        COLUMNS=max(16, triton.next_power_of_2(width)),
        BLOCK_SIZE=paging.block_size,
        SCALED=scales is not None,
        WINDOWED=scores.window is not None,
        CAPPED=scores.softcap is not None,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
