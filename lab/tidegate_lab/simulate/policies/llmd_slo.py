"""llm-d's SLO-aware law: the worse p90 over its target, through a KEDA formula and an HPA.

From llm-d/llm-d at d38c9f0 (2026-08): guides/workload-autoscaling/README.slo-aware.md. Every 15 s: s is the larger of
p90 TTFT and p90 TPOT over one minute, each over its target, at most 2, averaged over 45 s; with n replicas of which r
are ready and c = r/n, n + ceil(n(s·c/0.55 - 1)) above 0.55, n - floor(n(1 - s/0.40)) below 0.40. The HPA takes the
larger of 100 % and 4 pods in 60 s with a window of 30 s up, and one pod in 120 s with a window of 180 s down.
"""

from __future__ import annotations

import math

from tidegate_operator.observed import ServiceObserved

from tidegate_lab.simulate.policies.hpa import SYNC_S, Behavior, Rate, Rules, external_average
from tidegate_lab.simulate.policies.signals import Latency, Window, loads, ready, wanted
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

UP, DOWN = 0.55, 0.40
CLAMP, RATE_S, SMOOTH_S = 2.0, 60.0, 45.0
UP_RULES = Rules(window_s=30, rates=(Rate(percent=100, period_s=60), Rate(pods=4, period_s=60)))
DOWN_RULES = Rules(window_s=180, rates=(Rate(pods=1, period_s=120),))


def replicas_for(n: int, r: int, s: float, up: float = UP, down: float = DOWN) -> int:
    """The formula alone."""
    if s > up:
        credit = r / n if 0 < r < n else 1.0
        return n + math.ceil(n * (s * credit / up - 1))
    if s < down:
        return n - math.floor(n * (1 - s / down))
    return n


class LlmdSlo:
    """`up` is its main setting; the lower threshold keeps its ratio to it. It sees measured latencies: the guide takes
    predicted ones where it has a predictor, and says that either drives the same loop. No traffic reads 0."""

    name = "llmd-slo"
    interval_s = SYNC_S
    wants_sketches = True

    def __init__(self, told: Told, up: float = UP) -> None:
        self.told, self.up, self.down = told, up, DOWN / UP * up
        limits = {"ttft": told.targets.ttft_s, "tpot": told.targets.tpot_s}
        self.targets = [(Latency(metric, RATE_S), limit) for metric, limit in limits.items() if limit is not None]
        self.smooth = Window(SMOOTH_S)
        self.behavior = Behavior(UP_RULES, DOWN_RULES)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        reports = loads(observed)
        raw = 0.0
        for latency, limit in self.targets:
            latency.look(now, reports)
            raw = max(raw, (latency.quantile(0.9) or 0.0) / limit)
        self.smooth.add(now, min(raw, CLAMP))
        s, n = self.smooth.mean(), wanted(observed)
        formula = replicas_for(n, len(ready(observed)), s, self.up, self.down)
        recommended = self.told.within(external_average(formula, 1.0, n))
        return Choice(replicas=self.told.within(self.behavior.settle(now, n, recommended)), message=f"s = {s:.2f}")
