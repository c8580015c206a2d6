"""Paged attention of requests with one new token, or a few, in Triton.

The context is split among programs, as in Flash-Decoding (Dao and others, 2023), and the parts put together. How many
parts there are hangs on the batch alone, and their length on the context, read on the device: so a captured graph of
a batch holds for contexts of any length.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tidegate_engine.kernels.interface import KVScales, Paging
from tidegate_engine.kernels.triton_softmax import attend_range
from tidegate_engine.kernels.triton_tiles import Scores, Tile

_MOST_PARTS = 64


@triton.jit
def _split(length, count, parts, window, WINDOWED: tl.constexpr, KEYS: tl.constexpr):
    """The first key that any of `count` new tokens sees, and the keys in each part, a whole number of tiles."""
    begin = length * 0
    if WINDOWED:
        begin = tl.maximum(0, length - count + 1 - window)
    return begin, tl.cdiv(tl.cdiv(length - begin, parts), KEYS) * KEYS


@triton.jit
def _decode_part(
    query_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    out_ptr,
    parts_ptr,
    largest_ptr,
    totals_ptr,
    starts_ptr,
    lengths_ptr,
    tables_ptr,
    scale,
    query_stride,
    query_head_stride,
    block_stride,
    scale_block_stride,
    table_stride,
    window,
    softcap,
    most,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SCALED: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    WHOLE: tl.constexpr,
):
    part, kv_head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    parts, kv_heads = tl.num_programs(0), tl.num_programs(1)
    start = tl.load(starts_ptr + request)
    count = tl.load(starts_ptr + request + 1) - start
    length = tl.load(lengths_ptr + request)
    begin, part_length = _split(length, count, parts, window, WINDOWED, KEYS)
    first = begin + part * part_length
    if (count > most) | (first >= length):
        return
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    token = row // GROUP
    head = kv_head * GROUP + row % GROUP
    mine = token < count
    inside = mine[:, None] & (column < WIDTH)[None, :]
    at = (start + token).to(tl.int64)
    query_place = at[:, None] * query_stride + head[:, None] * query_head_stride + column[None, :]
    query = tl.load(query_ptr + query_place, mask=inside, other=0.0)
    head_offset = kv_head.to(tl.int64) * BLOCK_SIZE * WIDTH
    scale_offset = kv_head.to(tl.int64) * BLOCK_SIZE
    out, largest, total = attend_range(
        query,
        length - count + token,
        tl.zeros((ROWS, COLUMNS), tl.float32),
        tl.full((ROWS,), -1e38, tl.float32),  # finite: -inf minus -inf is not a number
        tl.zeros((ROWS,), tl.float32),
        key_ptr + head_offset,
        value_ptr + head_offset,
        key_scale_ptr + scale_offset,
        value_scale_ptr + scale_offset,
        tables_ptr + request.to(tl.int64) * table_stride,
        first,
        tl.minimum(length, first + part_length),
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
    to = at * kv_heads * GROUP + head
    if WHOLE:
        out = out / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(out_ptr + to[:, None] * WIDTH + column[None, :], out.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        to = to * parts + part
        tl.store(parts_ptr + to[:, None] * WIDTH + column[None, :], out, mask=inside)
        tl.store(largest_ptr + to, largest, mask=mine)
        tl.store(totals_ptr + to, total, mask=mine)


@triton.jit
def _join_parts(
    parts_ptr,
    largest_ptr,
    totals_ptr,
    out_ptr,
    starts_ptr,
    lengths_ptr,
    parts,
    heads,
    window,
    most,
    WINDOWED: tl.constexpr,
    KEYS: tl.constexpr,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    head, token, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(starts_ptr + request)
    count = tl.load(starts_ptr + request + 1) - start
    if (count > most) | (token >= count):
        return
    length = tl.load(lengths_ptr + request)
    begin, part_length = _split(length, count, parts, window, WINDOWED, KEYS)
    used = tl.cdiv(length - begin, part_length)  # the parts that had keys: the others wrote nothing
    row = (start + token).to(tl.int64) * heads + head
    part, column = tl.arange(0, PARTS), tl.arange(0, COLUMNS)
    there = part < used
    largest = tl.load(largest_ptr + row * parts + part, mask=there, other=-1e38)
    totals = tl.load(totals_ptr + row * parts + part, mask=there, other=0.0)
    shrink = tl.exp2(largest - tl.max(largest, axis=0))
    inside = there[:, None] & (column < WIDTH)[None, :]
    outs = tl.load(parts_ptr + (row * parts + part)[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)
    joined = tl.sum(outs * shrink[:, None], axis=0) / tl.sum(totals * shrink, axis=0)
    tl.store(out_ptr + row * WIDTH + column, joined.to(out_ptr.dtype.element_ty), mask=column < WIDTH)


def attend_short(
    paging: Paging,
    scores: Scores,
    tile: Tile,
    parts: int,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    scales: KVScales | None,
    out: Tensor,
) -> None:
    """Into `out` [T, Hq, D], the rows of requests whose new tokens fit a tile."""
    tokens, heads, width = query.shape
    kv_heads, requests = key_cache.shape[1], len(paging.context_lens)
    group = heads // kv_heads
    rows = max(triton.next_power_of_2(group), tile.rows)
    most = min(rows // group, paging.max_query_len)
    partial, largest = out, out
    totals = out  # with one part nothing is put together
    if parts > 1:
        partial = torch.empty((tokens, heads, parts, width), dtype=torch.float32, device=query.device)
        largest, totals = torch.empty((2, tokens, heads, parts), dtype=torch.float32, device=query.device)
    key_scale, value_scale = (scales.key, scales.value) if scales else (key_cache, value_cache)
    columns = max(16, triton.next_power_of_2(width))
    _decode_part[(parts, kv_heads, requests)](
        query,
        key_cache,
        value_cache,
        key_scale,
        value_scale,
        out,
        partial,
        largest,
        totals,
        paging.query_start,
        paging.context_lens,
        paging.block_tables,
        scores.scale,
        query.stride(0),
        query.stride(1),
        key_cache.stride(0),
        key_scale.stride(0),
        paging.block_tables.stride(0),
        scores.window or 0,
        scores.softcap or 0.0,
        most,
        GROUP=group,
        ROWS=rows,
        KEYS=tile.keys,
        WIDTH=width,
        COLUMNS=columns,
        BLOCK_SIZE=paging.block_size,
        SCALED=scales is not None,
        WINDOWED=scores.window is not None,
        CAPPED=scores.softcap is not None,
        WHOLE=parts == 1,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if parts > 1:
        _join_parts[(heads, most, requests)](
            partial,
            largest,
            totals,
            out,
            paging.query_start,
            paging.context_lens,
            parts,
            heads,
            scores.window or 0,
            most,
            WINDOWED=scores.window is not None,
            KEYS=tile.keys,
            PARTS=triton.next_power_of_2(parts),
            WIDTH=width,
            COLUMNS=columns,
        )


def split_context(longest: int, tiles: int, programs: int, keys: int) -> int:
    """Into how many parts contexts of up to `longest` tokens are split, so that about `programs` programs run.

    `tiles` is how many programs there are without a split; a part of fewer than two tiles of `keys` is not worth it.
    """
    return max(1, min(programs // max(tiles, 1), -(-longest // (2 * keys)), _MOST_PARTS))
