"""The inner loop of every Triton attention kernel: a tile of queries over a range of one request's paged keys."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend_range(
    query,
    positions,
    out,
    largest,
    total,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    table_ptr,
    start,
    stop,
    scale,
    block_stride,
    scale_block_stride,
    window,
    softcap,
    MASKED: tl.constexpr,
    SCALED: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Go on with the running softmax (weighted sum `out`, `largest` score, sum of weights `total`) over start..stop.

    Without MASKED every row sees every key, and the range is a whole number of tiles. Where the cache is SCALED, the
    scale of each key goes into its scores, that of each value into its weight.
    """
    column = tl.arange(0, COLUMNS)
    for first in range(start, stop, KEYS):
        at = first + tl.arange(0, KEYS)
        there = at < stop
        if MASKED:
            block = tl.load(table_ptr + at // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
        else:
            block = tl.load(table_ptr + at // BLOCK_SIZE).to(tl.int64)
        places = (block * block_stride + (at % BLOCK_SIZE) * WIDTH)[:, None] + column[None, :]
        inside = (column < WIDTH)[None, :]
        if MASKED:
            inside = there[:, None] & inside
        if MASKED or COLUMNS != WIDTH:
            key = tl.load(key_ptr + places, mask=inside, other=0.0)
            value = tl.load(value_ptr + places, mask=inside, other=0.0)
        else:
            key = tl.load(key_ptr + places)
            value = tl.load(value_ptr + places)
        key = key.to(query.dtype)
        value = value.to(query.dtype)
        # "ieee": on a GPU the default for float32 would be TF32; other types do not care.
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if SCALED:
            scale_place = block * scale_block_stride + at % BLOCK_SIZE
            scores = scores * tl.load(key_scale_ptr + scale_place, mask=there, other=0.0)[None, :]
        if CAPPED:
            # softcap * tanh(scores / softcap) by exp2, both in powers of two; 2.885… is 2 / ln 2.
            scores = softcap * (1.0 - 2.0 / (tl.exp2(scores * (2.8853900817779268 / softcap)) + 1.0))
        if MASKED:
            seen = there[None, :] & (at[None, :] <= positions[:, None])
            if WINDOWED:
                seen = seen & (at[None, :] > positions[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(largest - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        if SCALED:
            weights = weights * tl.load(value_scale_ptr + scale_place, mask=there, other=0.0)[None, :]
        out = tl.dot(weights.to(value.dtype), value, out * shrink[:, None], input_precision="ieee")
        largest = higher
    return out, largest, total
