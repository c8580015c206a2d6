"""Choosing tokens from logits, all requests of a step at once. Legend: S sampled rows, V vocabulary, N touched entries.

A row's token depends on its own logits, parameters and random number alone, whatever else is in the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

_FIRST_CANDIDATES = 64


def apply_penalties(
    logits: Tensor, ids: Tensor, output_counts: Tensor, presence: Tensor, frequency: Tensor, repetition: Tensor
) -> Tensor:
    """Repetition, frequency and presence penalties in place on float32 logits [S, V]; returns them.

    `ids` int64 [S, L]: the distinct tokens of a row's prompt and output, padded by repeating one of them with the same
    count; `output_counts` float32 [S, L]: how often the output holds each, 0 where only the prompt does. The strengths
    are float32 [S]; repetition counts prompt and output, as in transformers, the other two the output, as at OpenAI.
    """
    values = logits.gather(1, ids)
    by = repetition.unsqueeze(1)
    values = torch.where(values > 0, values / by, values * by)
    values -= frequency.unsqueeze(1) * output_counts + presence.unsqueeze(1) * (output_counts > 0)
    return logits.scatter_(1, ids, values)


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, bias: Tensor) -> Tensor:
    """Add `bias[i]` to `logits[rows[i], ids[i]]` in place (-inf forbids a token); all [B]; returns the logits."""
    return logits.index_put_((rows, ids), bias, accumulate=True)


def sample(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor) -> Tensor:
    """One token per row, int64 [S]; greedy where `temperature` is 0.

    Else the inverse of the cumulative distribution, in the vocabulary's order, at `uniform` [S] (float64, in [0, 1)),
    after temperature, then top-k (0 is off), top-p (1 is off) and min-p (0 is off). Equal logits at the edge of top-k
    or top-p are kept together, so that the result does not hang on how a sort breaks ties.
    """
    greedy = logits.argmax(dim=-1)
    drawn = (temperature > 0).nonzero().squeeze(-1)
    if not len(drawn):
        return greedy
    whole = len(drawn) == len(logits)
    rows = logits if whole else logits[drawn]
    tokens = _draw(rows, temperature[drawn], top_k[drawn], top_p[drawn], min_p[drawn], uniform[drawn])
    return tokens if whole else greedy.index_copy(0, drawn, tokens)


def logprobs(logits: Tensor, chosen: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The log probability of `chosen` [S], and ids and log probabilities of the `k` likeliest, each [S, k]."""
    normalised = torch.log_softmax(logits, dim=-1)
    of_chosen = normalised.gather(1, chosen.unsqueeze(1)).squeeze(1)
    top, ids = normalised.topk(k, dim=-1)
    return of_chosen, ids, top


def _draw(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor) -> Tensor:
    # The largest logit is taken off first: a temperature of 1e-5 must not overflow.
    weights = logits - logits.amax(dim=-1, keepdim=True)
    weights = weights.div_(temperature.unsqueeze(1)).exp_()  # the likeliest token weighs 1
    least = min_p.clone()
    cut = ((top_k > 0) | (top_p < 1)).nonzero().squeeze(-1)
    if len(cut):
        floors = _floor_of_kept(weights[cut], top_k[cut], top_p[cut])
        least = least.index_copy(0, cut, torch.maximum(least[cut], floors))
    weights = weights.masked_fill_(weights < least.unsqueeze(1), 0.0)
    # float64: in float32 a sum over 150,000 tokens would lose the unlikely ones.
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1]
    below = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(uniform.to(torch.float64) * total, below)
    drawn = torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1)
    # A row of NaN (damaged weights) finds no place; one past the vocabulary would end the next step for everybody.
    return drawn.clamp_(max=logits.shape[1] - 1)


def _floor_of_kept(weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The smallest weight that top-k and then top-p keep, [S]. Looks at the few largest, and at more while needed."""
    vocabulary = weights.shape[1]
    limit = torch.where(top_k > 0, top_k.clamp(max=vocabulary), vocabulary)
    mass = weights.sum(dim=-1, dtype=torch.float64)
    width = _FIRST_CANDIDATES
    while True:
        width = min(width, vocabulary)
        largest = weights.topk(width, dim=-1).values
        rank = torch.arange(width, device=weights.device)
        inside = rank < limit.unsqueeze(1)
        cumulative = (largest.to(torch.float64) * inside).cumsum(dim=-1)
        needed = top_p * torch.where(limit < vocabulary, cumulative[:, -1], mass)
        by_mass = (limit == vocabulary) & (top_p < 1) & (cumulative[:, -1] >= needed)
        enough = (limit <= width) | by_mass
        if bool(enough.all()):
            before = cumulative - largest
            kept = (inside & ((before < needed.unsqueeze(1)) | (top_p >= 1).unsqueeze(1))).sum(dim=-1).clamp(min=1)
            return largest.gather(1, (kept - 1).unsqueeze(1)).squeeze(1)
        width *= 8
