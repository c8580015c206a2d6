"""Names that want a look: each at most once, never two at once for one name, later after a failure.

`Backlog` is the arithmetic, with the time as an argument; `KeyedQueue` waits on it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate_operator.observed import ServiceKey


class Due(NamedTuple):
    """The next name, and in how many seconds it is due (0: now)."""

    key: ServiceKey
    wait: float


@dataclass
class Backlog:
    """Which name is due when. `debounce` gathers a burst; failures double the wait from `retry_base` to `retry_cap`."""

    debounce: float = 0.05
    retry_base: float = 0.5
    retry_cap: float = 60.0
    _due: dict[ServiceKey, float] = field(default_factory=dict)
    _waiting: list[tuple[float, ServiceKey]] = field(default_factory=list)
    """A heap of what is in `_due` and not worked on; entries that no longer hold are left out when they come up."""
    _busy: set[ServiceKey] = field(default_factory=set)
    _failures: dict[ServiceKey, int] = field(default_factory=dict)
    _not_before: dict[ServiceKey, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: ServiceKey, now: float, after: float | None = None) -> None:
        """Ask for a look; the earliest wish wins, but a failing name waits out its backoff, whoever asks."""
        wish = max(now + (self.debounce if after is None else after), self._not_before.get(key, 0.0))
        known = self._due.get(key)
        if known is None or wish < known:
            self._plan(key, wish)

    def remind(self, key: ServiceKey, now: float) -> bool:
        """Ask for a look now, unless one is planned: a tick does not hurry a name that waits for a person.

        Returns whether a look is due within the debounce.
        """
        if key not in self._due:
            self.add(key, now, after=0)
        return self._due[key] <= now + self.debounce

    def next(self, now: float) -> Due | None:
        """The earliest name that nobody works on, or None."""
        while self._waiting:
            due, key = self._waiting[0]
            if key not in self._busy and self._due.get(key) == due:
                return Due(key, max(0.0, due - now))
            heapq.heappop(self._waiting)  # it was taken, hurried, or is worked on and comes back after that
        return None

    def start(self, key: ServiceKey) -> None:
        """Take the name: wishes made from now on are for another look."""
        self._due.pop(key, None)
        self._busy.add(key)

    def succeed(self, key: ServiceKey) -> None:
        """The look is over and the name's failures are forgotten."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        self._free(key)

    def fail(self, key: ServiceKey, now: float) -> float:
        """The look failed: look again after a doubled wait, which is returned (seconds)."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait: float = min(self.retry_cap, self.retry_base * 2 ** min(failures, 20))
        self._not_before[key] = now + wait
        self._due[key] = now + wait
        self._free(key)
        return wait

    def _plan(self, key: ServiceKey, due: float) -> None:
        self._due[key] = due
        if key not in self._busy:
            heapq.heappush(self._waiting, (due, key))

    def _free(self, key: ServiceKey) -> None:
        self._busy.discard(key)
        if key in self._due:
            heapq.heappush(self._waiting, (self._due[key], key))


class KeyedQueue:
    """An awaitable backlog for several workers on one event loop; a wish wakes one of them, not all."""

    def __init__(self, clock: Callable[[], float], backlog: Backlog | None = None) -> None:
        self._backlog = Backlog() if backlog is None else backlog  # an empty one is false
        self._clock = clock
        self._idle: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._backlog)

    def add(self, key: ServiceKey, after: float | None = None) -> None:
        """Ask for a look at this name, `after` seconds from now (None: after the debounce)."""
        self._backlog.add(key, self._clock(), after)
        self._wake()

    def remind(self, key: ServiceKey) -> bool:
        """Ask for a look now, unless one is planned; returns whether one is due now."""
        due = self._backlog.remind(key, self._clock())
        self._wake()
        return due

    async def get(self) -> ServiceKey:
        """Wait for the next name that is due, and take it."""
        while True:
            due = self._backlog.next(self._clock())
            if due is not None and due.wait == 0:
                self._backlog.start(due.key)
                self._wake()  # there may be another one, for another worker
                return due.key
            await self._change(None if due is None else due.wait)

    def succeed(self, key: ServiceKey) -> None:
        """The look is over; wishes made meanwhile are served."""
        self._backlog.succeed(key)
        self._wake()

    def fail(self, key: ServiceKey) -> float:
        """The look failed; returns after how many seconds it is tried again."""
        wait = self._backlog.fail(key, self._clock())
        self._wake()
        return wait

    async def _change(self, within: float | None) -> None:
        """Until woken, or until so many seconds have passed."""
        woken = asyncio.get_running_loop().create_future()
        self._idle.append(woken)
        await asyncio.wait((woken,), timeout=within)
        if not woken.done():
            self._idle.remove(woken)

    def _wake(self) -> None:
        if self._idle and self._backlog.next(self._clock()) is not None:
            self._idle.popleft().set_result(None)
