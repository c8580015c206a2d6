"""AIBrix's APA: the mean of a metric per pod over its target, with a tolerance either way.

From vllm-project/aibrix at e3e10f9 (2026-08): pkg/controller/podautoscaler/algorithm/apa.go, context/context.go,
podautoscaler_controller.go, metrics/client.go; metric and target (KV cache in use, 0.5) from
samples/autoscaling/apa.yaml. A look every 10 s, window 180 s, tolerances 0.1, at most doubling and halving, cooldown
0 s up and 300 s down.
"""

from __future__ import annotations

import math
from collections import deque

from tidegate_operator.observed import ServiceObserved

from tidegate_lab.simulate.policies.signals import Window, kv_usage, loads, wanted
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

TARGET, TOLERANCE, FACTOR = 0.5, 0.1, 2.0
WINDOW_S, COOLDOWN_DOWN_S = 180.0, 300.0


def replicas_for(current: int, usage: float, target: float) -> int:
    """The law alone: `current` includes pods that still start."""
    ratio = usage / target
    if ratio > 1 + TOLERANCE:
        return min(math.ceil(current * ratio), math.ceil(FACTOR * current))
    if ratio < 1 - TOLERANCE:
        return max(math.ceil(current * ratio), math.floor(current / FACTOR))
    return current


class Aibrix:
    """On the way down the highest recommendation of the cooldown counts, which is what its documentation says of it
    (the code at that commit takes the lowest). Pods that do not answer are left out of the mean."""

    name = "aibrix-apa"
    interval_s = 10.0
    wants_sketches = False

    def __init__(self, told: Told, target: float = TARGET) -> None:
        self.told, self.target = told, target
        self.usage = Window(WINDOW_S)
        self.recommended: deque[tuple[float, int]] = deque()

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        reports, current = loads(observed), wanted(observed)
        if not reports:
            return Choice(replicas=current, reason="NoMetrics")
        self.usage.add(now, sum(kv_usage(load) for load in reports.values()) / len(reports))
        replicas = self.told.within(replicas_for(current, self.usage.mean(), self.target))
        self.recommended.append((now, replicas))
        while self.recommended[0][0] <= now - COOLDOWN_DOWN_S:
            self.recommended.popleft()
        if replicas < current:
            replicas = min(current, max(n for _, n in self.recommended))
        return Choice(replicas=replicas, message=f"KV cache {self.usage.mean():.0%} used on average")
