"""One replica in virtual time, step by step, by the engine's own scheduler and block pool."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Batch, Limits, Scheduler

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.servers import Counts

Event = tuple[int, float]
"""A request's index, and when it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """As `GET /load` has them: who has no first token yet waits, who has one runs. Times are virtual seconds."""

    running: int
    waiting: int
    blocks_used: int
    oldest_waiting_at: float | None
    """When the longest waiting request arrived; None where none waits."""
    oldest_unfinished_at: float | None
    last_step_at: float | None
    """When the last finished step ended; None before it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a request has come: tokens of its answer, and when it got the newest."""

    index: int
    tokens: int
    at: float


@dataclass(frozen=True, slots=True)
class _Flight:
    batch: Batch
    ends: float


class ExactReplica:
    """What one pod does with its requests: each answer is as long as asked, and no prompt shares a prefix.

    Time only moves forward: requests are submitted in order of arrival, none before what was advanced to.
    """

    def __init__(self, engine: EngineModel, *, began: float = 0.0) -> None:
        self.engine = engine
        self._pool = BlockPool(max(1, engine.kv_tokens // engine.block_size), engine.block_size, b"simulation")
        limits = Limits(max_model_len=2**62, token_budget=engine.token_budget, slots=engine.slots, prefix_caching=False)
        self._scheduler = Scheduler(self._pool, limits)
        self._now = began
        self._to_come: deque[tuple[int, float, int, int]] = deque()
        """Accepted, and not before the scheduler yet: they came during the step in flight, or are yet to come."""
        self._flight: _Flight | None = None
        self._waiting: dict[int, float] = {}
        """By index, when it arrived, in order of arrival; the same below."""
        self._unfinished: dict[int, float] = {}
        self._paces: dict[int, Pace] = {}
        self._first_tokens: list[Event] = []
        self._finished: list[Event] = []
        self._received = self._rejected = self._done = self._steps = 0
        self._last_step_at: float | None = None

    def submit(self, index: int, at: float, prompt: int, output: int) -> bool:
        """Take a request in; False where it is refused: the queue is full, or it could never fit the cache.

        It joins the first step that begins at `at` or later. Raises ValueError where `at` is in the past, or the index
        is in use.
        """
        if at < self._now or (self._to_come and at < self._to_come[-1][1]):
            raise ValueError(f"request {index} at {at:g}: is in the past, it is {self._now:g}; submit in order")
        if index in self._unfinished:
            raise ValueError(f"request {index}: is here already")
        self._received += 1
        bound = self.engine.most_queued
        full = bound is not None and len(self._unfinished) >= self.engine.slots + bound
        if full or self._pool.blocks_for(prompt + output - 1) > self._pool.num_blocks:
            self._rejected += 1
            return False
        self._waiting[index] = self._unfinished[index] = at
        self._to_come.append((index, at, prompt, output))
        return True

    def advance(self, until: float) -> None:
        """Let time pass: steps begin before `until`, and what ends up to it has ended."""
        while True:
            if self._flight is not None:
                if self._flight.ends > until:
                    break
                self._land(self._flight)
            if not self._scheduler.has_work:
                if not self._to_come:
                    break
                self._now = max(self._now, self._to_come[0][1])
            if self._now >= until:
                break
            self._begin()
        self._now = max(self._now, until) if math.isfinite(until) else self._now

    def _begin(self) -> None:
        while self._to_come and self._to_come[0][1] <= self._now:
            index, _, prompt, output = self._to_come.popleft()
            self._scheduler.add(index, [0] * prompt, SamplingParams(max_tokens=output))
        batch = self._scheduler.schedule()
        assert batch is not None, "whatever was let in fits alone, so there is always a step for it"
        held = sum(part.start + len(part.token_ids) for part in batch.work)
        self._flight = _Flight(batch, self._now + self.engine.step.seconds(batch.num_tokens, held))

    def _land(self, flight: _Flight) -> None:
        self._flight = None
        self._now = self._last_step_at = flight.ends
        self._steps += 1
        sampled = [[0] for part in flight.batch.work if part.samples]
        for output in self._scheduler.commit(flight.batch, sampled):
            if self._waiting.pop(output.id, None) is not None:
                self._first_tokens.append((output.id, self._now))
                self._paces[output.id] = Pace(output.id, 0, self._now)
            self._paces[output.id] = Pace(output.id, self._paces[output.id].tokens + len(output.tokens), self._now)
            if output.finish_reason is not None:
                del self._unfinished[output.id], self._paces[output.id]
                self._done += 1
                self._finished.append((output.id, self._now))

    def take_first_tokens(self) -> list[Event]:
        """First tokens since this was last asked, in order of time."""
        taken, self._first_tokens = self._first_tokens, []
        return taken

    def take_finished(self) -> list[Event]:
        """Requests that ended since this was last asked, in order of time."""
        taken, self._finished = self._finished, []
        return taken

    @property
    def unfinished(self) -> tuple[int, ...]:
        """What would be lost if it crashed now."""
        return tuple(self._unfinished)

    @property
    def paces(self) -> tuple[Pace, ...]:
        """Of those that have a token and are not finished."""
        return tuple(self._paces.values())

    @property
    def gauges(self) -> Gauges:
        """The replica at the time that was advanced to."""
        return Gauges(
            running=len(self._unfinished) - len(self._waiting),
            waiting=len(self._waiting),
            blocks_used=self._pool.num_used,
            oldest_waiting_at=next(iter(self._waiting.values()), None),
            oldest_unfinished_at=next(iter(self._unfinished.values()), None),
            last_step_at=self._last_step_at,
        )

    @property
    def counts(self) -> Counts:
        """Totals at the time that was advanced to; `received` includes those rejected."""
        totals = self._scheduler.totals
        return Counts(
            received=self._received,
            finished=self._done,
            rejected=self._rejected,
            prompt_tokens=totals.prompt_tokens,
            generated_tokens=totals.generated_tokens,
            preemptions=totals.preemptions,
            steps=self._steps,
        )
