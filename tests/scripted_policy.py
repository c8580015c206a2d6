"""Policies for tests of the simulator: fixed plans, and what they were shown."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.scenario import EPOCH
from tidegate_lab.traffic.trace import Trace
from tidegate_operator.observed import ServiceObserved


@dataclass(kw_only=True)
class Scripted:
    """So many replicas from each time on."""

    plan: tuple[tuple[float, int], ...]
    interval_s: float = 5.0
    name: str = "scripted"
    wants_sketches: bool = True
    seen: list[ServiceObserved] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        self.seen.append(observed)
        self.times.append(now - EPOCH)
        return Choice(replicas=[n for at, n in self.plan if at <= now - EPOCH][-1])

    def at(self, seconds: float) -> ServiceObserved:
        """What it was shown then."""
        return self.seen[self.times.index(seconds)]


def fixed(replicas: int) -> Scripted:
    return Scripted(plan=((0.0, replicas),))


def drawn_trace(seed: int, requests: int, seconds: float, prompt: int, output: int) -> Trace:
    """Poisson arrivals, lengths uniform up to these."""
    drawn = np.random.default_rng(seed)
    return Trace(
        name=f"drawn-{seed}",
        at=np.sort(drawn.uniform(0, seconds, requests)),
        prompt=drawn.integers(1, prompt + 1, requests).astype(np.int32),
        output=drawn.integers(1, output + 1, requests).astype(np.int32),
        seconds=seconds,
    )
