"""llm-d's SLO-aware law: the worse p90 over its target, through a KEDA formula and an HPA.

From llm-d/llm-d at d38c9f0 (2026-08): guides/workload-autoscaling/README.slo-aware.md. Every 15 s: s is the larger of
p90 TTFT and p90 TPOT over one minute, each over its target, at most 2, averaged over 45 s; with n replicas of which r
are ready and c = r/n, n + ceil(n(s·c/0.55 - 1)) above 0.55, n - floor(n(1 - s/0.40)) below 0.40. The HPA takes the
larger of 100 % and 4 pods in 60 s with a window of 30 s up, and one pod in 120 s with a window of 180 s down.
"""

from __future__ import annotations

import math

from tidegate_operator.observed import LoadReport, ServiceObserved

from tidegate_lab.simulate.policies.hpa import SYNC_S, Behavior, Rate, Rules, external_average
from tidegate_lab.simulate.policies.signals import Latency, Lengths, Window, loads, ready, wanted
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
    """`up` is its main setting; the lower threshold keeps its ratio to it. No traffic reads 0.

    Its TTFT is predicted, as the guide prefers: by the step model and the cache for a request that comes now. (They
    learn it online. TTFT is told of requests that finished, a whole answer later than their histogram has it, so that
    measured ones alone would make the law later than it is.) TPOT is measured.
    """

    name = "llmd-slo"
    interval_s = SYNC_S
    wants_sketches = True

    def __init__(self, told: Told, up: float = UP) -> None:
        self.told, self.up, self.down = told, up, DOWN / UP * up
        self.lengths = Lengths(RATE_S)
        self.predicted, self.tpot = Window(RATE_S), Latency("tpot", RATE_S)
        self.smooth = Window(SMOOTH_S)
        self.behavior = Behavior(UP_RULES, DOWN_RULES)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        reports = loads(observed)
        self.lengths.look(now, reports)
        self.tpot.look(now, reports)
        for load in reports.values():
            self.predicted.add(now, self.ttft_of_a_newcomer(load, len(reports)))
        worst = 0.0
        if self.told.targets.ttft_s is not None and self.lengths.prompt():
            worst = self.predicted.quantile(0.9) / self.told.targets.ttft_s
        if self.told.targets.tpot_s is not None:
            worst = max(worst, (self.tpot.quantile(0.9) or 0.0) / self.told.targets.tpot_s)
        self.smooth.add(now, min(worst, CLAMP))
        s, n = self.smooth.mean(), wanted(observed)
        formula = replicas_for(n, len(ready(observed)), s, self.up, self.down)
        recommended = self.told.within(external_average(formula, 1.0, n))
        return Choice(replicas=self.told.within(self.behavior.settle(now, n, recommended)), message=f"s = {s:.2f}")

    def ttft_of_a_newcomer(self, load: LoadReport, pods: int) -> float:
        """Seconds: prefills of those that wait and fit into the cache, then its own; those that do not fit wait for
        others to finish, and where none did lately, longer than any target."""
        engine, prompt = self.told.engine, self.lengths.prompt()
        free = (load.kv_blocks.total - load.kv_blocks.used) * engine.block_size
        fitting = min(load.waiting, free // max(prompt, 1.0), max(0, engine.slots - load.running))
        prefills = engine.step.b * prompt * (fitting + 1) + engine.step.a * math.ceil(prompt / engine.token_budget)
        if load.waiting <= fitting:
            return prefills
        rate = self.lengths.finished_per_s() / pods
        return prefills + (load.waiting - fitting) / rate if rate else math.inf
