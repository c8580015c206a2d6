"""Knative's KPA: mean concurrency over a stable and a panic window.

From knative/serving at 98e5ef9 (2026-08): pkg/autoscaler/scaling/autoscaler.go and pkg/autoscaler/config/config.go. A
tick every 2 s; windows of 60 s and 10 % of it; panic at 200 %; up at most 1000-fold, down at most by half a tick;
target concurrency 100 of which 70 % is used; no scale-down delay.
"""

from __future__ import annotations

import math

from tidegate_operator.observed import ServiceObserved

from tidegate_lab.simulate.policies.signals import Window, inside, loads, ready
from tidegate_lab.simulate.policies.signals import wanted as wanted_replicas
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

TARGET, UTILISATION = 100.0, 0.7
STABLE_S, PANIC_S, PANIC_THRESHOLD = 60.0, 6.0, 2.0
MOST_UP, MOST_DOWN = 1000.0, 2.0


class Knative:
    """`target` is the concurrency of one replica, before utilisation. Without data it decides nothing."""

    name = "knative-kpa"
    interval_s = 2.0
    wants_sketches = False

    def __init__(self, told: Told, target: float = TARGET) -> None:
        self.told, self.per_replica = told, target * UTILISATION
        self.stable, self.panic = Window(STABLE_S), Window(PANIC_S)
        self.panic_since: float | None = None
        self.highest = 0
        self.started = False

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        there = len(ready(observed))
        if not self.started:
            # A new autoscaler begins in panic where more than one pod is up, so that it does not shrink blindly.
            self.started = True
            if there > 1:
                self.panic_since, self.highest = now, there
        if there and not loads(observed):
            return Choice(replicas=wanted_replicas(observed), reason="NoData")
        seen = inside(observed)
        self.stable.add(now, seen)
        self.panic.add(now, seen)
        count = max(1, there)
        least, most = math.floor(count / MOST_DOWN), math.ceil(MOST_UP * count)
        steady = min(max(math.ceil(self.stable.mean() / self.per_replica), least), most)
        raw = math.ceil(self.panic.mean() / self.per_replica)
        urgent = min(max(raw, least), most)
        over = raw / count >= PANIC_THRESHOLD
        if over:
            self.panic_since = now
        elif self.panic_since is not None and self.panic_since + STABLE_S < now:
            self.panic_since, self.highest = None, 0
        replicas = steady
        if self.panic_since is not None:
            self.highest = max(self.highest, steady, urgent)
            replicas = self.highest
        reason = "Panic" if self.panic_since is not None else "Stable"
        return Choice(replicas=self.told.within(replicas), reason=reason, message=f"{seen} inside")
