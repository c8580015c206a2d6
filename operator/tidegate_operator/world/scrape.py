"""What engine pods last said on `GET /load`. A pod that hangs costs its own timeout and nobody else's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegate_operator.observed import LoadReport, UnreadableLoad, read_load
from tidegate_operator.world.load_client import LoadClient

PATIENCE_S = 0.5
"""A service waits this long for its pods; what comes later is taken at the next look."""


class Target(NamedTuple):
    """An engine pod that can be asked."""

    uid: str
    ip: str


class Asked(NamedTuple):
    """How a service's pods answered."""

    asked: int
    failed: int
    """Did not answer well, or not yet."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The last report of a pod, when it was read (monotonic seconds), and why the newest attempt failed, if it did."""

    load: LoadReport | None = None
    read_at: float = 0.0
    error: str | None = None


_NOTHING = Reading()


class Scraper:
    """The readings of all pods; at most one request to a pod is under way."""

    def __init__(self, client: LoadClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._readings: dict[str, Reading] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._slow: set[str] = set()
        self._defect: BaseException | None = None

    def __len__(self) -> int:
        return len(self._readings)

    def reading(self, uid: str) -> Reading | None:
        """What is known of this pod; None: it was never asked."""
        return self._readings.get(uid)

    async def ask(self, targets: Collection[Target]) -> Asked:
        """Ask each once, unless it still owes an answer; wait a little for those that were not slow last time."""
        if self._defect is not None:
            raise self._defect
        awaited = []
        for target in targets:
            if target.uid in self._asking:
                continue
            task = self._asking[target.uid] = asyncio.create_task(self._one(target))
            task.add_done_callback(self._ended)
            if target.uid not in self._slow:
                awaited.append(task)
        if awaited:
            await asyncio.wait(awaited, timeout=PATIENCE_S)
        owing = sum(t.uid in self._asking or self._readings.get(t.uid, _NOTHING).error is not None for t in targets)
        return Asked(len(targets), owing)

    def keep(self, targets: Collection[Target]) -> None:
        """Forget every pod but these, and hang up."""
        uids = {target.uid for target in targets}
        self._client.keep({target.ip for target in targets})
        for uid in self._readings.keys() - uids:
            del self._readings[uid]
        self._slow.intersection_update(uids)

    async def close(self) -> None:
        """End what is under way, and close the kept connections."""
        tasks = tuple(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _one(self, target: Target) -> None:
        began = self._clock()
        try:
            load = read_load(await self._client.load(target.ip))
        except UnreadableLoad as failure:
            self._readings[target.uid] = replace(self._readings.get(target.uid, _NOTHING), error=str(failure))
        else:
            self._readings[target.uid] = Reading(load, self._clock())
        finally:
            del self._asking[target.uid]
            if self._clock() - began > PATIENCE_S:
                self._slow.add(target.uid)
            else:
                self._slow.discard(target.uid)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A defect is no pod's fault: it ends the process at the next look, loudly."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._defect = error
