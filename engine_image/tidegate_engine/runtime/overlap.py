"""Steps of which the next is made and queued on the device while one runs; the host never waits for its own work.

A step is scheduled before the tokens of the one in flight are known: each request that samples there has one token to
come, whose place in the next step PENDING takes; the device itself puts the token there. What a request says is read
a step later. A request that turns out to have ended was computed once in vain, and keeps its blocks until then.
Only for requests whose next step needs nothing but the token itself: no penalties, guesses or grammars.
"""

from __future__ import annotations

from typing import Protocol

from tidegate_engine.core.scheduler import Scheduler
from tidegate_engine.core.step import Batch, RequestOutput


class InFlight(Protocol):
    """A step that the device has been told to do."""

    @property
    def batch(self) -> Batch:
        """What it computes."""
        ...

    def tokens(self) -> list[list[int]]:
        """Wait for it; the tokens of each part that samples."""
        ...


class Launcher(Protocol):
    """Hands steps to a device."""

    def launch(self, batch: Batch) -> InFlight:
        """Queue a step behind those launched before; at most two are in flight."""
        ...


class OverlappedSteps:
    """Schedules a step ahead of the one that runs."""

    def __init__(self, scheduler: Scheduler, launcher: Launcher) -> None:
        self._scheduler = scheduler
        self._launcher = launcher
        self._running: InFlight | None = None

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything, or tell what is computed."""
        return self._scheduler.has_work or self._running is not None

    def step(self) -> list[RequestOutput]:
        """Launch the next step, then hear what the one before it has said; nothing where it was the first."""
        batch = self._scheduler.schedule(ahead=self._running is not None)
        launched = None if batch is None else self._launcher.launch(batch)
        done, self._running = self._running, launched
        return [] if done is None else self._scheduler.commit(done.batch, done.tokens())

    def finish(self) -> list[RequestOutput]:
        """Hear what the step in flight has said, and launch no other: afterwards steps may be made one by one."""
        done, self._running = self._running, None
        return [] if done is None else self._scheduler.commit(done.batch, done.tokens())
