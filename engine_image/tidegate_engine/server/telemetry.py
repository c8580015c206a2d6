"""What the engine counts about itself since it started: the source of `/load` and `/metrics`."""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Sequence

from tidegate_engine.core.request import FinishReason
from tidegate_engine.link.messages import Stats
from tidegate_engine.server.answers import Answer, Choice
from tidegate_engine.server.sketch import Sketch

TOKEN_BOUNDS = (
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2,
    0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Seconds. On a GPU a token takes one or two milliseconds, on half a core half a second."""
REQUEST_BOUNDS = (
    0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0,
    60.0, 120.0, 240.0, 480.0, 960.0,
)  # fmt: skip
"""Seconds, of first tokens and whole answers."""
_RATE_WINDOW = 30.0
"""Seconds over which the rate of finishing is measured."""
NOTHING_YET = Stats(0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Histogram:
    """Counts under fixed bounds; cheaper than the client library's in the path of every token."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a duration `times` times."""
        self.counts[bisect.bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times


class Telemetry:
    """Counters, sketches and histograms. All times are seconds of the monotonic clock, passed in."""

    def __init__(self) -> None:
        self.received = 0
        self.finished = 0
        self.rejected = 0
        self.expired = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.finish_reasons: Counter[str] = Counter({reason.value: 0 for reason in FinishReason})
        self.ttft, self.tpot, self.e2e = Sketch(), Sketch(), Sketch()
        self.ttft_histogram = Histogram(REQUEST_BOUNDS)
        self.e2e_histogram = Histogram(REQUEST_BOUNDS)
        self.tpot_histogram = Histogram(TOKEN_BOUNDS)
        self.token_histogram = Histogram(TOKEN_BOUNDS)
        self.stats = NOTHING_YET
        self.last_step_at: float | None = None
        self._finishes: deque[float] = deque()

    def step(self, stats: Stats, now: float) -> None:
        """The runtime reports; only a message that counts more steps than the last says that one finished."""
        if stats.steps > self.stats.steps:
            self.last_step_at = now
        self.stats = stats

    def tokens(self, answer: Answer, choice: Choice, count: int, before: float | None, now: float) -> None:
        """A choice gained `count` tokens; its last ones came at `before`, None if these are the first."""
        self.generated_tokens += count
        if before is not None:
            self.token_histogram.observe((now - before) / count, count)
        if answer.first_at is None:
            answer.first_at = now
            self.ttft.add(now - answer.arrival)
            self.ttft_histogram.observe(now - answer.arrival)
            self.prompt_tokens += answer.prompt_tokens

    def end(self, answer: Answer, now: float) -> None:
        """A request is over. One that its client left says nothing about latency."""
        self.finished += 1
        self.cached_tokens += answer.cached_tokens
        for choice in answer.choices:
            self.finish_reasons[(choice.finish_reason or FinishReason.ABORT).value] += 1
        if answer.aborted or answer.failure is not None:
            return
        if answer.first_at is None:  # an embedding, or a prompt that was only scored
            self.prompt_tokens += answer.prompt_tokens
        self._finishes.append(now)
        self._forget(now)
        self.e2e.add(now - answer.arrival)
        self.e2e_histogram.observe(now - answer.arrival)
        for choice in answer.choices:
            if choice.tokens > 1 and choice.first_at is not None and choice.last_at is not None:
                pace = (choice.last_at - choice.first_at) / (choice.tokens - 1)
                self.tpot.add(pace)
                self.tpot_histogram.observe(pace)

    def retry_after(self, waiting: int, oldest: float, now: float) -> int:
        """Whole seconds until the queue has drained, by the rate at which requests finish; 1 to 60.

        Where none has finished lately, the age of the oldest request is the only measure there is.
        """
        self._forget(now)
        if not self._finishes:
            return max(1, min(60, round(oldest)))
        rate = len(self._finishes) / max(1.0, min(_RATE_WINDOW, now - self._finishes[0]))
        return max(1, min(60, round(waiting / rate)))

    def _forget(self, now: float) -> None:
        while self._finishes and self._finishes[0] < now - _RATE_WINDOW:
            self._finishes.popleft()
