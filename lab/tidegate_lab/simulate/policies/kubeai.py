"""KubeAI: active requests averaged over ten minutes, divided by the target of a replica.

From substratusai/kubeai at 2f32ef4 (2025-07): internal/modelautoscaler/autoscaler.go, internal/modelclient/scale.go,
api/k8s/v1/model_types.go, charts/kubeai/values.yaml. A look every 10 s, window 10 min, targetRequests 100, and
scaleDownDelaySeconds 30: three looks in a row must want fewer.
"""

from __future__ import annotations

import math

from tidegate_operator.observed import ServiceObserved

from tidegate_lab.simulate.policies.signals import Window, inside, wanted
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

TARGET = 100.0
WINDOW_S, INTERVAL_S, SCALE_DOWN_DELAY_S = 600.0, 10.0, 30.0


class KubeAI:
    """It counts at its own proxy. Its window starts filled with zeros, or with the average saved before a restart; here
    it averages what it has seen so far, which is the kinder of the two."""

    name = "kubeai"
    interval_s = INTERVAL_S
    wants_sketches = False

    def __init__(self, told: Told, target: float = TARGET) -> None:
        self.told, self.target = told, target
        self.active = Window(WINDOW_S)
        self.fewer = 0

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        self.active.add(now, inside(observed))
        current = wanted(observed)
        replicas = self.told.within(math.ceil(self.active.mean() / self.target))
        message = f"{self.active.mean():.1f} active on average"
        if replicas >= current:
            self.fewer = 0
        elif self.fewer < math.ceil(SCALE_DOWN_DELAY_S / INTERVAL_S):
            self.fewer += 1
            return Choice(replicas=current, reason="ScaleDownDelay", message=message)
        return Choice(replicas=replicas, message=message)
