"""What prompts tell beside the next token: how likely their own tokens were, and their embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from tidegate_engine.core.scheduler import Batch
from tidegate_engine.kernels.sampling import logprobs
from tidegate_engine.link.messages import TokenLogprobs
from tidegate_engine.model import LoadedModel

_ROWS = 64
"""Logits of so many rows are held at a time: of a whole chunk they would take more memory than many a model."""


@dataclass(frozen=True, slots=True)
class Readout:
    """By request, what a step has told of its prompt."""

    scores: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    embeddings: dict[int, bytes] = field(default_factory=dict)


def wanted(batch: Batch) -> bool:
    """Whether a step has anything to tell of prompts."""
    return any(part.scored is not None or part.embeds for part in batch.work)


def read_out(batch: Batch, hidden: torch.Tensor, model: LoadedModel) -> Readout:
    """Of `hidden` [S, H]: rows that sample, then those to be scored, in the order of the batch's work."""
    found = Readout()
    rows = 0
    for part in batch.work:
        rows += part.num_rows
        if part.embeds:
            found.embeddings[part.id] = _embedding(hidden[rows - 1])
    scored = [(part.id, part.scored) for part in batch.work if part.scored is not None]
    targets = [target for _, wish in scored for target in wish.targets]
    if targets:
        tops = [wish.top for _, wish in scored for _ in wish.targets]
        scores = _score(hidden[rows:], targets, tops, model)
        for id, wish in scored:
            found.scores[id] = [next(scores) for _ in wish.targets]
    return found


def _embedding(row: torch.Tensor) -> bytes:
    """The last token's state, which has seen the whole text, at length 1."""
    vector = torch.nn.functional.normalize(row.to(torch.float32), dim=0).cpu().numpy()
    return vector.astype("<f4").tobytes()


def _score(hidden: torch.Tensor, targets: list[int], tops: list[int], model: LoadedModel) -> Iterator[TokenLogprobs]:
    for first in range(0, len(targets), _ROWS):
        part = slice(first, first + _ROWS)
        logits = model.logits(hidden[part])
        chosen = torch.tensor(targets[part], dtype=torch.int64, device=logits.device)
        likely, ids, top = logprobs(logits, chosen, max(tops[part]))
        yield from _cut(zip(tops[part], likely.tolist(), ids.tolist(), top.tolist(), strict=True))


def _cut(rows: Iterable[tuple[int, float, list[int], list[float]]]) -> Iterator[TokenLogprobs]:
    for count, likely, ids, top in rows:
        yield TokenLogprobs(likely, ids[:count], top[:count])
