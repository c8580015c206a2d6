"""Guesses of a second, smaller model that reads the same tokens.

It runs whole on rank 0, with a cache and blocks of its own, so that the scheduler and the other ranks need to know
nothing of it: they hear the guesses. What its cache lacks of a text (the prompt, tokens that it guessed otherwise) is
computed when guesses are next wanted, and never more in a step than the step's token budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.scheduler import Batch, Decoding, Work
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Row, Sampler


@dataclass(slots=True)
class _Reading:
    """How far the model has read a request's text."""

    tokens: list[int] = field(default_factory=list)
    """Whose keys and values are in the cache; its end may be guesses that did not come true."""
    sure: int = 0
    """Of these, the number that are known to be the text's."""
    blocks: list[int] = field(default_factory=list)

    def agree(self, text: Sequence[int]) -> None:
        """Forget what is not the text; the last token is always read again, since what follows it is wanted."""
        while self.sure < min(len(self.tokens), len(text) - 1) and self.tokens[self.sure] == text[self.sure]:
            self.sure += 1
        del self.tokens[self.sure :]


@dataclass(slots=True)
class _Guess:
    """A request that is being guessed for in this step."""

    wish: Decoding
    depth: int
    reading: _Reading
    guesses: list[int] = field(default_factory=list)


class DraftModel:
    """Reads and guesses for all requests together: one pass to read, then one for each further guess."""

    def __init__(self, runner: Runner, sampler: Sampler, pool: BlockPool, token_budget: int) -> None:
        self._runner = runner
        self._sampler = sampler
        self._pool = pool
        self._budget = token_budget
        self._longest = runner.model.config.max_position
        self._readings: dict[int, _Reading] = {}

    def propose(self, wishes: Sequence[tuple[Decoding, int]]) -> dict[int, list[int]]:
        """For each request so many guesses, drawn as its own tokens are; none yet where the text is not read."""
        guessing = self._read(wishes)
        while going := [guess for guess in guessing if len(guess.guesses) < guess.depth]:
            works = [
                Work(
                    guess.wish.id,
                    len(guess.reading.tokens),
                    (guess.guesses[-1],),
                    tuple(guess.reading.blocks),
                    samples=True,
                )
                for guess in going
            ]
            self._run(works, going)
        return {guess.wish.id: guess.guesses for guess in guessing}

    def forget(self, id: int) -> None:
        """A request is over; one that is not known is no news."""
        reading = self._readings.pop(id, None)
        if reading is not None:
            self._pool.release(reading.blocks)

    def _read(self, wishes: Sequence[tuple[Decoding, int]]) -> list[_Guess]:
        """Bring the cache up to the texts as far as budget and blocks go; those that got there, with a first guess."""
        wanted = {wish.id for wish, _ in wishes}
        budget = self._budget
        works: list[Work] = []
        guessing: list[_Guess] = []
        for wish, depth in wishes:
            text = wish.tokens
            depth = min(depth, self._longest - len(text))
            reading = self._readings.setdefault(wish.id, _Reading())
            reading.agree(text)
            start = reading.sure
            end = min(len(text), start + budget)
            if depth < 1 or end <= start or not self._make_room(reading, end + depth - 1, wanted):
                continue
            budget -= end - start
            done = end == len(text)
            tokens = tuple(text[start:end])
            works.append(Work(wish.id, start, tokens, tuple(reading.blocks), samples=done))
            if done:
                guessing.append(_Guess(wish, depth, reading))
            else:
                reading.tokens += tokens
        if works:
            self._run(works, guessing)
        return guessing

    def _run(self, works: list[Work], guessing: list[_Guess]) -> None:
        """One pass; those that guess read what it computes and get the next guess."""
        logits, _ = self._runner.run(Batch(tuple(works)))
        rows = [
            Row(guess.wish.id, len(guess.wish.tokens) + len(guess.guesses), tuple(guess.guesses)) for guess in guessing
        ]
        read = {work.id: work.token_ids for work in works}
        for guess, token in zip(guessing, self._sampler.draw(rows, logits) if rows else (), strict=True):
            guess.reading.tokens += read[guess.wish.id]
            guess.guesses.append(token)

    def _make_room(self, reading: _Reading, num_tokens: int, wanted: set[int]) -> bool:
        """Find blocks for so many tokens, those of requests that want nothing now if need be."""
        missing = self._pool.blocks_for(num_tokens) - len(reading.blocks)
        for id in [id for id in self._readings if id not in wanted]:
            if missing <= self._pool.num_free:
                break
            self.forget(id)
        if missing > self._pool.num_free:
            return False
        reading.blocks += [self._pool.allocate() for _ in range(missing)]
        return True
