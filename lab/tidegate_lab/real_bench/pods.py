"""When each pod was created, ready and gone, seen from outside, once a half second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median, pstdev

import numpy as np

EVERY_S = 0.5


@dataclass(slots=True)
class Life:
    """One pod; seconds of `time.time`. None: not yet."""

    created_at: float
    ready_at: float | None = None
    gone_at: float | None = None

    @property
    def cold_start_s(self) -> float | None:
        return None if self.ready_at is None else self.ready_at - self.created_at

    def paid(self, begin: float, end: float) -> float:
        """Seconds between the two that it was there: what the simulator counts, too."""
        gone = end if self.gone_at is None else self.gone_at
        return max(0.0, min(gone, end) - max(self.created_at, begin))


@dataclass(frozen=True, slots=True)
class Glance:
    """One pod as the API server tells it."""

    uid: str
    created_at: float
    ready: bool
    ready_since: float | None


@dataclass(slots=True)
class Lives:
    """What became of the pods of one service."""

    pods: dict[str, Life] = field(default_factory=dict)

    def see(self, glances: Iterable[Glance], now: float) -> None:
        """Take in one look at all that are there."""
        there = set()
        for pod in glances:
            there.add(pod.uid)
            # The API server tells whole seconds, cut off; half a second more is right on average.
            life = self.pods.setdefault(pod.uid, Life(min(now, pod.created_at + 0.5)))
            if pod.ready and life.ready_at is None:
                life.ready_at = now if pod.ready_since is None else min(now, pod.ready_since + 0.5)
        for uid, life in self.pods.items():
            if uid not in there and life.gone_at is None:
                life.gone_at = now

    def replica_hours(self, begin: float, end: float) -> float:
        """From creation until gone, of all of them, between two times."""
        return sum(life.paid(begin, end) for life in self.pods.values()) / 3600

    def most(self, begin: float, end: float) -> int:
        """At a time, ready or not."""
        times = [begin, *(life.created_at for life in self.pods.values() if begin < life.created_at < end)]
        return max(sum(life.paid(at, at + 1e-3) > 0 for life in self.pods.values()) for at in times)

    def since(self, begin: float) -> tuple[Life, ...]:
        """All of them, in order of creation, on a clock that is 0 at `begin`."""

        def shifted(at: float | None) -> float | None:
            return None if at is None else round(at - begin, 1)

        lives = sorted(self.pods.values(), key=lambda life: life.created_at)
        return tuple(
            Life(round(life.created_at - begin, 1), shifted(life.ready_at), shifted(life.gone_at)) for life in lives
        )

    def cold_starts(self) -> list[float]:
        """Of those that became ready, in seconds."""
        return [took for life in self.pods.values() if (took := life.cold_start_s) is not None]


def median_and_spread(cold_starts: list[float]) -> tuple[float, float]:
    """Median, and the standard deviation of the logarithms: the simulator's two numbers."""
    return median(cold_starts), pstdev([float(np.log(took)) for took in cold_starts])


class Watching:
    """Looks at the pods in a thread of its own, as long as the `with` lasts."""

    def __init__(self, look: Callable[[], list[Glance]], every_s: float = EVERY_S) -> None:
        self.lives = Lives()
        self._look, self._every_s, self._ended = look, every_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Lives:
        self._thread.start()
        return self.lives

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                glances = self._look()
            except OSError:
                glances = []
            if glances:  # a service has a pod at any time; none is an API server that did not answer
                self.lives.see(glances, time.time())
            self._ended.wait(self._every_s)
