"""How the HPA turns recommendations into replicas: tolerance, stabilization windows, rates.

From kubernetes/kubernetes pkg/controller/podautoscaler/{horizontal,replica_calculator}.go and the defaults in
pkg/apis/autoscaling/v2/defaults.go and pkg/controller/podautoscaler/config/v1alpha1/defaults.go: a sync every 15 s,
tolerance 0.1; up the larger of 4 pods and 100 % in 15 s, no window; down 100 % in 15 s, window 300 s. Windows as in
`stabilizeRecommendationWithBehaviors` of 1.37: both hold at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

SYNC_S = 15.0
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most so many pods, or so many percent of those at the period's beginning, in a period."""

    period_s: float
    pods: int | None = None
    percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One direction; of several rates the most generous counts (selectPolicy Max)."""

    window_s: float
    rates: tuple[Rate, ...]


UP = Rules(window_s=0, rates=(Rate(pods=4, period_s=15), Rate(percent=100, period_s=15)))
DOWN = Rules(window_s=300, rates=(Rate(percent=100, period_s=15),))


@dataclass(slots=True)
class Behavior:
    """`settle` once a sync; keeps recommendations and changes as the controller does."""

    up: Rules = UP
    down: Rules = DOWN
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _changes: deque[tuple[float, int]] = field(default_factory=deque)

    def settle(self, now: float, current: int, recommended: int) -> int:
        """What becomes of a recommendation; the caller applies the bounds."""
        if not self._recommended:
            # The controller notes the number it finds as its first recommendation.
            self._recommended.append((now, current))
        lowest = min([recommended, *self._since(now - self.up.window_s)])
        highest = max([recommended, *self._since(now - self.down.window_s)])
        self._recommended.append((now, recommended))
        longest = max(self.up.window_s, self.down.window_s)
        while self._recommended[0][0] < now - longest:
            self._recommended.popleft()
        # It moves no further than into what was recommended lately: a low one in the window of a rise stops the rise,
        # and takes nothing away.
        settled = self._limited(now, current, min(max(current, lowest), highest))
        if settled != current:
            self._changes.append((now, settled - current))
        return settled

    def _since(self, began: float) -> list[int]:
        return [n for at, n in self._recommended if at > began]

    def _limited(self, now: float, current: int, stable: int) -> int:
        periods = [rate.period_s for rate in (*self.up.rates, *self.down.rates)]
        while self._changes and self._changes[0][0] <= now - max(periods):
            self._changes.popleft()
        if stable > current:
            most = max(self._after(now, current, rate, +1) for rate in self.up.rates)
            return min(stable, max(most, current))
        if stable < current:
            least = min(self._after(now, current, rate, -1) for rate in self.down.rates)
            return max(stable, min(least, current))
        return current

    def _after(self, now: float, current: int, rate: Rate, sign: int) -> int:
        began = current - sum(change for at, change in self._changes if at > now - rate.period_s)
        if rate.pods is not None:
            return began + sign * rate.pods
        assert rate.percent is not None
        share = began * (1 + sign * rate.percent / 100)
        return math.ceil(share) if sign > 0 else int(share)


def external_average(total: float, target: float, current: int) -> int:
    """Replicas for an external metric with an AverageValue (GetExternalPerPodMetricReplicas)."""
    if current and _is_near(total / (target * current)):
        return current
    return math.ceil(total / target)


def pods_average(values: Sequence[float], target: float, current: int, *, pending: int, silent: int) -> int:
    """Replicas for a Pods metric with an AverageValue (calcPlainMetricReplicas).

    `pending` pods are not started; `silent` ones have, and give no metric. On the way up both count as 0, on the way
    down the silent ones as 100 % of the target. No metric at all: the HPA reports an error and changes nothing.
    """
    if not values:
        return current
    ratio = sum(values) / len(values) / target
    if not silent and not (pending and ratio > 1):
        return current if _is_near(ratio) else math.ceil(ratio * len(values))
    total, count = sum(values), len(values)
    if silent:
        count += silent
        total += silent * target if ratio < 1 else 0.0
    if pending and ratio > 1:
        count += pending
    again = total / count / target
    if _is_near(again) or (ratio < 1 < again) or (again < 1 < ratio):
        return current
    replicas = math.ceil(again * count)
    turned = (again < 1 and replicas > current) or (again > 1 and replicas < current)
    return current if turned else replicas


def _is_near(ratio: float) -> bool:
    """`Tolerances.isWithin`: 1.1 is, as they write it; 1.1 - 1 is more than 0.1 in binary fractions."""
    return 1 - TOLERANCE <= ratio <= 1 + TOLERANCE
