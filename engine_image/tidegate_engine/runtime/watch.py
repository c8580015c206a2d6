"""Ranks that die or hang while rank 0 cannot look: in the rendezvous, or within a step that waits for all of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_LOOK_SECONDS = 0.5
_STUCK_SECONDS = 7.0
"""Without a look and the end of the process, within the ten seconds that a lost rank may take to end the pod."""
_SOME_WORK = 0.1
"""CPU seconds: a seventieth of one core, far less than any rank gets that computes beside others or under a quota."""
_HANDLED_SECONDS = 2.0
"""How long rank 0 has to notice a death by itself, which it does between steps and in a collective operation."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """A rank's process as the kernel describes it."""

    rank: int
    state: str
    """as in /proc: R runs, S sleeps, D waits for a disk, T is stopped"""
    cpu: float
    """seconds of CPU it has taken"""


class Standstill:
    """Whether a step makes progress. Not by how long it takes, which nobody can bound, but by whether anybody computes.

    A rank that waits for another sleeps; where all sleep, one of them will never wake.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._since = 0.0
        self._cpu = 0.0

    def look(self, now: float, step: int | None, readings: Sequence[Reading]) -> str | None:
        """What is wrong, once nobody has computed for too long in one step; `step` is None between steps."""
        cpu = sum(reading.cpu for reading in readings)
        waits_for_disk = any(reading.state == "D" for reading in readings)
        if step is None or step != self._step or cpu - self._cpu >= _SOME_WORK or waits_for_disk:
            self._step, self._since, self._cpu = step, now, cpu
            return None
        if now - self._since < _STUCK_SECONDS:
            return None
        stopped = [reading.rank for reading in readings if reading.state in "tT"]
        if stopped:
            return f"rank {stopped[0]} of {len(readings)} is stopped in the middle of a step"
        return f"none of {len(readings)} ranks has computed for {_STUCK_SECONDS:.0f} s in the middle of a step"


def read_process(rank: int, pid: int) -> Reading | None:
    """Of a process that exists; None of one that has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Reading(rank, fields[0], (int(fields[11]) + int(fields[12])) / _TICKS)


class Rank(Protocol):
    """A process of another rank."""

    @property
    def rank(self) -> int: ...

    @property
    def pid(self) -> int: ...

    def has_ended(self) -> bool:
        """Whether it is gone, without waiting."""
        ...


class Watch:
    """A thread that looks twice a second, and says so where rank 0 itself does not get to."""

    def __init__(self, ranks: Sequence[Rank], died: Callable[[Rank], None], stuck: Callable[[str], None]) -> None:
        """Of the two callbacks one is called, once; they are expected to end the process."""
        self._ranks, self._died, self._stuck = ranks, died, stuck
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.step: int | None = None
        """The number of the step that is being computed; None between steps."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """From here on rank 0 knows what it needs to."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        standstill = Standstill()
        while not self._over.wait(_LOOK_SECONDS):
            dead = next((rank for rank in self._ranks if rank.has_ended()), None)
            if dead is not None:
                if not self._over.wait(_HANDLED_SECONDS):
                    self._died(dead)
                return
            readings = [read_process(0, os.getpid()), *(read_process(rank.rank, rank.pid) for rank in self._ranks)]
            there = [reading for reading in readings if reading is not None]
            wrong = standstill.look(time.monotonic(), self.step, there)
            if wrong is not None:
                self._stuck(wrong)
                return
