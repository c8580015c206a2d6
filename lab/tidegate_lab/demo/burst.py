"""The second act: more requests than one replica can serve, until there are three, then few, until there is one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tidegate_lab.demo.loads import JobOfLoad
from tidegate_lab.demo.places import Place
from tidegate_lab.demo.shell import Shell, StepFailed
from tidegate_lab.load.report import Report
from tidegate_lab.watch.look import Look, Watcher
from tidegate_lab.watch.table import Table

WANTED = 3

Flags = dict[str, str | float]


@dataclass(frozen=True, kw_only=True)
class Burst:
    """How much, for how long. First one replica is measured, since machines differ; the burst follows from that.

    With 1.8 times what one replica serves, two are loaded to 90 %, which no p99 survives, and three to 60 %.
    """

    url: str
    model: str
    worth: float = 1.8
    """Arrivals of the burst, in what one replica serves."""
    slots: int = 4
    """Requests a replica of the example runs at a time; so many keep it busy, and no more wait."""
    measure_s: float = 12.0
    at_most_s: float = 180.0
    with_all_s: float = 45.0
    """How long the burst goes on once all replicas are ready."""
    calm_rate: float = 0.1
    calm_s: float = 240.0
    seed: int = 1

    def measuring(self) -> Flags:
        """A closed loop that keeps one replica just busy, as flags of the load job."""
        return self._flags(1, concurrency=self.slots, duration=self.measure_s, requests=1000)

    def high(self, capacity: float) -> Flags:
        """The burst: arrivals by the clock, at a rate that follows from what one replica serves in a second."""
        return self._flags(2, rate=round(self.worth * capacity, 2), duration=self.at_most_s, requests=5000)

    def low(self) -> Flags:
        """The trickle."""
        return self._flags(3, rate=self.calm_rate, duration=self.calm_s, requests=100)

    def _flags(self, part: int, **shape: float) -> Flags:
        # A seed of its own for each part: a prompt that was seen before would be answered from the prefix cache.
        sizes = {"prompt-tokens": 60, "max-tokens": 24, "timeout": 180, "seed": 10 * self.seed + part}
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
    others: tuple[Report, ...]
    """Of the measuring before it and the trickle after it."""
    seen: Seen

    @property
    def loads(self) -> tuple[Report, ...]:
        return (self.burst, *self.others)

    @property
    def sent(self) -> int:
        return sum(load.sent for load in self.loads)

    @property
    def completed(self) -> int:
        return sum(load.completed for load in self.loads)

    @property
    def failed(self) -> int:
        return sum(load.failed for load in self.loads)

    @property
    def faults(self) -> list[str]:
        found = []
        if self.failed:
            first = next(load.first_failure for load in self.loads if load.failed)
            found.append(f"{self.failed} of {self.sent} requests failed, the first: {first}")
        if self.seen.most_ready < WANTED:
            found.append(f"replicas did not reach {WANTED}: at most {self.seen.most_ready} were ready")
        elif not self.seen.back_at_one:
            found.append("replicas did not come back to 1 in time")
        return found


def measure(shell: Shell, place: Place, burst: Burst) -> Report:
    """What one replica serves here, all its slots busy. Raises StepFailed where it serves nothing."""
    report = JobOfLoad(shell, place, "measure", burst.measuring()).wait(burst.measure_s + 210)
    if not report.completed:
        raise StepFailed(f"one replica served nothing in {report.took_s:.0f} s; {report.first_failure}")
    return report


def run(shell: Shell, place: Place, watcher: Watcher, burst: Burst, measured: Report) -> Verdict:
    """Send the burst, then a trickle while replicas go, so that going is seen to lose nothing."""
    table, seen = Table(shell.console), Seen()

    def look() -> Look:
        now = watcher.look()
        seen.take(now)
        table.show(now)
        time.sleep(1.0)
        return now

    high = JobOfLoad(shell, place, "burst", burst.high(measured.served_per_s))
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
    return Verdict(report, (measured, low.wait(210)), seen)
