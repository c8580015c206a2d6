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
    """How much, for how long; the defaults suit engine pods of 0.4 processors and the example's targets."""

    url: str
    model: str
    rate: float = 2.0
    duration_s: float = 75.0
    calm_rate: float = 0.2
    calm_s: float = 300.0
    seed: int = 1

    def flags(self, rate: float, duration_s: float) -> dict[str, str | float]:
        """For the load job."""
        return {
            "url": self.url, "model": self.model, "rate": rate, "duration": duration_s,
            "requests": int(rate * duration_s * 2) + 1, "timeout": 180, "prompt-tokens": 60, "max-tokens": 24,
            "seed": self.seed,
        }  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What the table showed."""

    most_ready: int = 0
    back_at_one: bool = False
    looks: list[Look] = field(default_factory=list)

    def take(self, look: Look) -> None:
        """Note one row."""
        self.looks.append(look)
        self.most_ready = max(self.most_ready, look.ready or 0)
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

    def look() -> None:
        now = watcher.look()
        seen.take(now)
        table.show(now)
        time.sleep(1.0)

    high = JobOfLoad(shell, place, "burst", burst.flags(burst.rate, burst.duration_s))
    while high.running:
        look()
    report = high.wait(1)
    low = JobOfLoad(shell, place, "calm", burst.flags(burst.calm_rate, burst.calm_s))
    until = time.monotonic() + burst.calm_s
    while low.running and time.monotonic() < until and not seen.back_at_one and seen.most_ready >= WANTED:
        look()
    return Verdict(report, low.end(), seen)
