"""The second act: more requests than one replica can serve, until there are three, then few, until there is one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tidegate_lab.demo.loads import JobOfLoad
from tidegate_lab.demo.places import Place
from tidegate_lab.demo.shell import Shell
from tidegate_lab.load.report import Report
from tidegate_lab.watch.look import Look, Watcher
from tidegate_lab.watch.table import Table

WANTED = 3


@dataclass(frozen=True, kw_only=True)
class Burst:
    """How much, for how long; the defaults suit the example, whose replicas run 4 at a time and let 2 wait.

    The burst is a closed loop, so that a slow machine is not buried: 18 inside are three full replicas. The trickle
    is an open loop, by the clock.
    """

    url: str
    model: str
    concurrency: int = 18
    at_most_s: float = 180.0
    with_all_s: float = 20.0
    """How long the burst goes on once all replicas are ready."""
    calm_rate: float = 0.1
    calm_s: float = 240.0
    seed: int = 1

    def high(self) -> dict[str, str | float]:
        """The burst, as flags of the load job."""
        return self._flags(concurrency=self.concurrency, duration=self.at_most_s, requests=2000)

    def low(self) -> dict[str, str | float]:
        """The trickle."""
        return self._flags(rate=self.calm_rate, duration=self.calm_s, requests=100)

    def _flags(self, **shape: float) -> dict[str, str | float]:
        sizes = {"prompt-tokens": 60, "max-tokens": 24, "timeout": 120, "seed": self.seed}
        return {"url": self.url, "model": self.model} | shape | sizes


@dataclass(slots=True)
class Seen:
    """What the table showed."""

    most_ready: int = 0
    all_ready_at: float | None = None
    """When the most that was wanted was ready first; None: never."""
    back_at_one: bool = False
    looks: list[Look] = field(default_factory=list)

    def take(self, look: Look) -> None:
        """Note one row."""
        self.looks.append(look)
        self.most_ready = max(self.most_ready, look.ready or 0)
        if self.most_ready >= WANTED and self.all_ready_at is None:
            self.all_ready_at = look.at_s
        self.back_at_one = self.most_ready >= WANTED and look.ready == 1 and look.desired == 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it went; `faults` says in one line each what did not hold."""

    burst: Report
    calm: Report
    seen: Seen

    @property
    def sent(self) -> int:
        return self.burst.sent + self.calm.sent

    @property
    def completed(self) -> int:
        return self.burst.completed + self.calm.completed

    @property
    def failed(self) -> int:
        return self.burst.failed + self.calm.failed

    @property
    def faults(self) -> list[str]:
        found = []
        if self.failed:
            first = self.burst.first_failure or self.calm.first_failure
            found.append(f"{self.failed} of {self.sent} requests failed, the first: {first}")
        if self.seen.most_ready < WANTED:
            found.append(f"replicas did not reach {WANTED}: at most {self.seen.most_ready} were ready")
        elif not self.seen.back_at_one:
            found.append("replicas did not come back to 1 in time")
        return found


def run(shell: Shell, place: Place, watcher: Watcher, burst: Burst) -> Verdict:
    """Send the burst, then a trickle while replicas go, so that going is seen to lose nothing."""
    table, seen = Table(shell.console), Seen()

    def look() -> Look:
        now = watcher.look()
        seen.take(now)
        table.show(now)
        time.sleep(1.0)
        return now

    high = JobOfLoad(shell, place, "burst", burst.high())
    while high.running:
        now = look()
        if seen.all_ready_at is not None and now.at_s - seen.all_ready_at >= burst.with_all_s:
            break
    high.stop()
    while high.running:
        look()
    report = high.wait(1)
    low = JobOfLoad(shell, place, "calm", burst.low())
    while low.running and not seen.back_at_one and seen.most_ready >= WANTED:
        look()
    low.stop()
    return Verdict(report, low.wait(150), seen)
