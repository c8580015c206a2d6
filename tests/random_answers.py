"""Answers of a model that likes letters and endings, and else says anything: what a grammar has to put up with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from byte_vocabulary import END, OTHER_END, SIZE, VOCABULARY
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.core.sequence import Sequence as Answer
from tidegate_engine.runtime.constraints import Constraint
from tidegate_engine.runtime.matching import MatcherFactory
from tidegate_engine.runtime.sampler import Sampler

FACTORY = MatcherFactory(VOCABULARY, SIZE)


def params(seed: int, **more: Any) -> SamplingParams:
    return SamplingParams(
        **{"max_tokens": 400, "seed": seed, "stop_token_ids": (END, OTHER_END), "grammar": "given", **more}
    )


def random_logits(seed: int, liked: Sequence[int] = ()) -> Callable[[], torch.Tensor]:
    """A row of logits for each token; without a liking for endings strings would be noise without one."""
    source = torch.Generator().manual_seed(seed)
    liking = torch.zeros(SIZE)
    liking[list(b'"}] abcdefghijklmnopqrstuvwxyz')] += 2.0
    liking[list(b'"}]')] += 2.0
    liking[[END, OTHER_END, *liked]] += 3.0
    return lambda: torch.randn(1, SIZE, generator=source) + liking


def say(
    grammar: str,
    logits: Callable[[], torch.Tensor],
    wanted: SamplingParams,
    factory: MatcherFactory = FACTORY,
    token_bytes: Sequence[bytes] = [*VOCABULARY.tokens[:END], b"", b""],
) -> tuple[str, FinishReason]:
    """An answer, as sampler and scheduler make it."""
    sampler = Sampler()
    sampler.add(1, [1], wanted, Constraint(factory.matcher(grammar), SIZE))
    answer = Answer(1, [1], 1, wanted, turn=(0, 0))
    while True:
        work = Work(1, 0, tuple(answer.tokens), (0,), samples=True)
        (said,) = sampler.sample(Batch((work,)), logits()).tokens
        assert said, sampler.broken
        reason = answer.append(said[0])
        if reason is not None:
            break
        sampler.heard(1, said)
    text = b"".join(token_bytes[token] for token in answer.tokens[1:])
    return text.decode(errors="strict" if reason is FinishReason.STOP else "replace"), reason
