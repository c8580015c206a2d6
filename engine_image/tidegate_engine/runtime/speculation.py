"""Guessing the next tokens, so that one step can check several: who guesses, how many, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tidegate_engine.core.scheduler import Batch, Decoding
from tidegate_engine.link.messages import StepCost
from tidegate_engine.runtime.speculation_control import SpeculationControl


class Drafter(Protocol):
    """Where guesses come from."""

    def propose(self, wishes: Sequence[tuple[Decoding, int]]) -> dict[int, list[int]]:
        """For each request up to so many guesses of its next tokens; requests without any are left out."""

    def forget(self, id: int) -> None:
        """A request is over; one that is not known is no news."""


class Speculation:
    """A drafter, under control of what it is worth."""

    def __init__(
        self, drafter: Drafter, control: SpeculationControl, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._drafter = drafter
        self._control = control
        self._clock = clock

    def propose(self, decoding: Sequence[Decoding], cost: StepCost | None) -> dict[int, list[int]]:
        """Guesses for the next step, by request; `cost` is what steps take, None where it is not known yet."""
        kv_tokens = sum(len(request.tokens) for request in decoding)
        depths = self._control.plan([request.id for request in decoding], kv_tokens, cost)
        if not depths:
            return {}
        began = self._clock()
        wishes = [(request, min(depths[request.id], request.room)) for request in decoding if request.id in depths]
        drafts = self._drafter.propose(wishes)
        deepest = max((len(guesses) for guesses in drafts.values()), default=0)
        self._control.proposed(len(decoding), deepest, self._clock() - began)
        return drafts

    def learn(self, batch: Batch, sampled: Sequence[Sequence[int]], seconds: float, cost: StepCost | None) -> None:
        """What a step has said, and how long it took without the guessing; `cost` is what was expected of it."""
        rows = iter(sampled)
        for part in batch.work:
            tokens = next(rows) if part.samples else ()
            if part.drafts and tokens:
                self._control.checked(part.id, part.drafts, len(tokens) - 1)
        if all(len(part.token_ids) == 1 + part.drafts for part in batch.work):
            guesses = sum(part.drafts for part in batch.work)
            kv_tokens = sum(part.start + 1 for part in batch.work)
            self._control.stepped(len(batch.work), guesses, kv_tokens, seconds, cost)

    def forget(self, id: int) -> None:
        """A request is over."""
        self._drafter.forget(id)
        self._control.forget(id)
