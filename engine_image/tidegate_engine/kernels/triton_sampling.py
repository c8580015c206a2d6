"""Choosing tokens on the device, without a sort: thresholds are found by halving the range of their bits.

The same numbers as `sampling.sample`: weights of the likeliest token 1, kept from a floor on, drawn in the vocabulary's
order from sums in float64. A non-negative float32 and its bits, read as a whole number, are in the same order; so the
floor of top-k is the largest 30 bits that at least k weights reach (1.0 has no bit 30), and that of top-p follows from
the largest over which the sum still is what is needed. Each bit is one pass over a row that lies in the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BITS = 30


@triton.jit
def _reaching(weights_ptr, vocabulary, least, BLOCK: tl.constexpr):
    """How many weights are at least `least`."""
    count = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weights = tl.load(weights_ptr + at, mask=at < vocabulary, other=-1.0)
        count += (weights >= least).to(tl.int32)
    return tl.sum(count, axis=0)


@triton.jit
def _mass_over(weights_ptr, vocabulary, most, BLOCK: tl.constexpr):
    """The sum of the weights that are over `most`."""
    mass = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weights = tl.load(weights_ptr + at, mask=at < vocabulary, other=-1.0)
        mass += tl.where(weights > most, weights, 0.0).to(tl.float64)
    return tl.sum(mass, axis=0)


@triton.jit
def _sample_rows(
    logits_ptr,
    weights_ptr,
    tokens_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    uniform_ptr,
    vocabulary,
    stride,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    weights_ptr += row * vocabulary
    temperature = tl.load(temperature_ptr + row)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + at, mask=at < vocabulary, other=float("-inf"))
        higher = logits > largest
        where = tl.where(higher, at, where)
        largest = tl.where(higher, logits, largest)
    most = tl.max(largest, axis=0)
    if temperature == 0:
        likeliest = tl.min(tl.where(largest == most, where, vocabulary - 1), axis=0)
        tl.store(tokens_ptr + row, likeliest.to(tl.int64))
        return
    mass = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + at, mask=at < vocabulary, other=float("-inf"))
        weights = tl.exp((logits - most) / temperature)
        tl.store(weights_ptr + at, weights, mask=at < vocabulary)
        mass += weights.to(tl.float64)
    tl.debug_barrier()  # the weights are read again by other threads than wrote them
    total = tl.sum(mass, axis=0)
    floor = tl.load(min_p_ptr + row)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    if (top_k > 0) & (top_k < vocabulary):
        bits = (row * 0).to(tl.int32)
        for step in range(BITS):
            trial = bits | (1 << (BITS - 1 - step))
            if _reaching(weights_ptr, vocabulary, trial.to(tl.float32, bitcast=True), BLOCK) >= top_k:
                bits = trial
        edge = bits.to(tl.float32, bitcast=True)
        floor = tl.maximum(floor, edge)
        # Of weights equal to the edge, so many count as there are places left.
        over = _reaching(weights_ptr, vocabulary, (bits + 1).to(tl.float32, bitcast=True), BLOCK)
        total = _mass_over(weights_ptr, vocabulary, edge, BLOCK) + (top_k - over).to(tl.float64) * edge.to(tl.float64)
    if top_p < 1:
        needed = top_p.to(tl.float64) * total
        if _mass_over(weights_ptr, vocabulary, 0.0, BLOCK) >= needed:
            bits = (row * 0).to(tl.int32)
            for step in range(BITS):
                trial = bits | (1 << (BITS - 1 - step))
                if _mass_over(weights_ptr, vocabulary, trial.to(tl.float32, bitcast=True), BLOCK) >= needed:
                    bits = trial
            # One bit more is the least that is kept; the likeliest token, which weighs 1, always is.
            floor = tl.maximum(floor, tl.minimum((bits + 1).to(tl.float32, bitcast=True), 1.0))
    kept = tl.zeros((BLOCK,), tl.float64)
    last = tl.full((BLOCK,), -1, tl.int32)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weights = tl.load(weights_ptr + at, mask=at < vocabulary, other=0.0)
        inside = (weights >= floor) & (weights > 0)
        kept += tl.where(inside, weights, 0.0).to(tl.float64)
        last = tl.where(inside, at, last)
    target = tl.load(uniform_ptr + row) * tl.sum(kept, axis=0)
    before = (row * 0).to(tl.float64)
    token = (row * 0).to(tl.int32)
    for first in range(0, vocabulary, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weights = tl.load(weights_ptr + at, mask=at < vocabulary, other=0.0)
        weights = tl.where(weights >= floor, weights, 0.0).to(tl.float64)
        reached = before + tl.cumsum(weights, axis=0)
        token += tl.sum((reached <= target).to(tl.int32), axis=0)
        before += tl.sum(weights, axis=0)
    # Where rounding leads past the sum, the last that is kept; a row of NaN keeps none, and gets a token all the same.
    end = tl.max(last, axis=0)
    token = tl.minimum(token, tl.where(end < 0, vocabulary - 1, end))
    tl.store(tokens_ptr + row, token.to(tl.int64))


def sample(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor) -> Tensor:
    """See sampling.sample; the tokens stay on the device, and nothing waits for them."""
    rows, vocabulary = logits.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    weights = torch.empty((rows, vocabulary), dtype=torch.float32, device=logits.device)
    if rows:
        block = min(4096, triton.next_power_of_2(vocabulary))
        _sample_rows[(rows,)](
            logits,
            weights,
            tokens,
            temperature,
            top_k,
            top_p,
            min_p,
            uniform,
            vocabulary,
            logits.stride(0),
            BITS=_BITS,
            BLOCK=block,
            num_warps=8,
        )
    return tokens
