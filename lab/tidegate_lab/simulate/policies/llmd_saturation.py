"""llm-d's saturation law: tokens in use and queued against what the replicas can hold, pending ones counted.

From llm-d/llm-d-workload-variant-autoscaler at b08b1c7 (2026-02): internal/engines/analyzers/saturation_v2/analyzer.go
(up where demand passes 0.85 of the supply with pending, down where 0.70 of the supply exceeds it),
internal/engines/pipeline/cost_aware_optimizer.go, internal/collector/registration/saturation.go, and the chart's HPA
(10 pods in 150 s, a window of 240 s, either way). A look every 30 s; the KV cache counts up to 0.80.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from tidegate_operator.observed import LoadReport, ServiceObserved

from tidegate_lab.simulate.policies.hpa import SYNC_S, Behavior, Rate, Rules, external_average
from tidegate_lab.simulate.policies.signals import Lengths, Window, loads, ready, wanted
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

UP, DOWN = 0.85, 0.70
KV_THRESHOLD, QUEUE_THRESHOLD, HISTORY = 0.80, 5, 10
ANALYSE_S, LATEST_S, LENGTHS_S = 30.0, 60.0, 300.0
RULES = Rules(window_s=240, rates=(Rate(pods=10, period_s=150),))


def compute_bound(token_budget: int, slots: int, prompt: float, answer: float) -> float:
    """Tokens that a replica holds at its steady batch, from its flags (`estimateCapacityFromParams`); 0: unknown."""
    if answer <= 0:
        return 0.0
    batch = min(token_budget * answer / (prompt + answer), slots)
    return batch * (prompt + answer / 2)


def replicas_for(
    current: int, ready_count: int, demand: float, capacity: float, up: float = UP, down: float = DOWN
) -> int:
    """From tokens demanded and tokens one replica can hold; the last replica stays."""
    if capacity <= 0:
        return current
    required = demand / up - current * capacity
    if required > 0:
        return current + math.ceil(required / capacity)
    spare = ready_count * capacity - demand / down
    return max(1, current - math.floor(spare / capacity)) if spare > 0 else current


class LlmdSaturation:
    """`up` is its main setting; the lower threshold keeps its ratio to it. A pod without series is left out."""

    name = "llmd-saturation"
    interval_s = SYNC_S
    wants_sketches = False

    def __init__(self, told: Told, up: float = UP) -> None:
        self.told, self.up, self.down = told, up, DOWN / UP * up
        self.lengths = Lengths(LENGTHS_S)
        self.recent: dict[str, tuple[Window, Window]] = {}
        self.history: dict[str, deque[float]] = {}
        self.behavior = Behavior(RULES, RULES)
        self.published: int | None = None
        self.analysed_at = -math.inf

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        reports, current = loads(observed), wanted(observed)
        self.lengths.look(now, reports)
        self.recent = {uid: self.recent.get(uid, (Window(LATEST_S), Window(LATEST_S))) for uid in reports}
        for uid, load in reports.items():
            for window, value in zip(self.recent[uid], (load.kv_blocks.used, load.waiting), strict=True):
                window.add(now, value)
        if now - self.analysed_at >= ANALYSE_S:
            self.analysed_at = now
            self.published = self._analysed(reports, current, len(ready(observed)))
        if self.published is None:
            return Choice(replicas=current, reason="NoMetrics")
        recommended = self.told.within(external_average(self.published, 1.0, current))
        return Choice(replicas=self.told.within(self.behavior.settle(now, current, recommended)))

    def _analysed(self, reports: dict[str, LoadReport], current: int, ready_count: int) -> int | None:
        if not reports:
            return self.published
        prompt, answer = self.lengths.prompt(), self.lengths.answer()
        demand, capacities = 0.0, []
        for uid in reports:
            used, waiting = (window.highest() for window in self.recent[uid])
            tokens = used * self.told.engine.block_size
            demand += tokens + waiting * prompt
            capacities.append(self._capacity(tokens, waiting, prompt, answer))
        return self.told.within(replicas_for(current, ready_count, demand, median(capacities), self.up, self.down))

    def _capacity(self, tokens: float, waiting: float, prompt: float, answer: float) -> float:
        """The smaller of what memory holds and what computing bears: seen where the queue is long, remembered by
        length of answers, else worked out from the engine's flags."""
        memory = self.told.engine.kv_tokens * KV_THRESHOLD
        bucket = "short" if answer < 100 else "medium" if answer < 500 else "long"
        seen = self.history.setdefault(bucket, deque(maxlen=HISTORY))
        if waiting >= QUEUE_THRESHOLD and tokens > 0:
            seen.append(tokens)
            computing = tokens
        elif seen:
            computing = sum(seen) / len(seen)
        else:
            computing = compute_bound(self.told.engine.token_budget, self.told.engine.slots, prompt, answer) or memory
        return min(memory, computing)
