"""What keeps a wish from being followed at once: bounds, windows and rates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate_operator.decide.scaling_history import History
from tidegate_operator.decide.scaling_memory import Moment, Window
from tidegate_operator.decide.scaling_policy import Direction, ScalingPolicy

WATCHED_S = 600.0
"""Of arrivals, before it can be told how evenly they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """Replicas after limits, and the limits that changed the number, in the order they did."""

    replicas: int
    by: tuple[str, ...]


def remember(window: Window, wish: int, hold: int, policy: ScalingPolicy, now: float) -> Window:
    """Keep what later looks need of this one: maxima of what would hold, minima of what was wished."""
    holds = tuple(m for m in window.holds if m.replicas > hold and m.at > now - policy.down.window_s)
    wishes = tuple(m for m in window.wishes if m.replicas < wish and m.at > now - policy.up.window_s)
    longest = max((r.period_s for r in (*policy.up.rates, *policy.down.rates)), default=0.0)
    return replace(
        window,
        holds=(*holds, Moment(at=now, replicas=hold)),
        wishes=(*wishes, Moment(at=now, replicas=wish)),
        changes=tuple(m for m in window.changes if m.at > now - longest),
    )


def with_window(
    policy: ScalingPolicy, history: History, dispersion: float | None, cold_start_s: float
) -> ScalingPolicy:
    """The window on the way down where the user asked for none: the less evenly requests arrive, the longer.

    A peak stands out of the mean by the square root of the dispersion, and a replica that chance brings back costs a
    cold start, than which it is no shorter. Dispersion 1 (independent users) 120 s, 2 (a day of ServeGen) 170 s, 6 and
    more (Azure code) 300 s.
    """
    down = policy.down
    if down.evenly_s is None or dispersion is None or history.seconds < WATCHED_S:
        return policy
    window_s = max(down.evenly_s, cold_start_s) * math.sqrt(max(1.0, dispersion))
    return replace(policy, down=replace(down, window_s=min(down.window_s, window_s)))


def limit(wish: int, current: int, policy: ScalingPolicy, window: Window, now: float) -> Limited:
    """Follow the wish as far as windows, rates and bounds let it. Bounds count most, and at once."""
    by: list[str] = []
    replicas = wish
    if replicas > policy.maximum:
        replicas, by = policy.maximum, [policy.maximum_by]
    elif replicas < policy.minimum:
        replicas, by = policy.minimum, [policy.minimum_by]
    bounded = min(max(current, policy.minimum), policy.maximum)
    if replicas > bounded:
        replicas = _upwards(replicas, bounded, policy.up, window, by, now)
    elif replicas < bounded:
        replicas = _downwards(replicas, bounded, policy.down, window, by, now)
    return Limited(replicas=replicas, by=tuple(by))


def _upwards(wish: int, current: int, rule: Direction, window: Window, by: list[str], now: float) -> int:
    if rule.disabled:
        by.append("scaleUpDisabled")
        return current
    steady = min((m.replicas for m in window.wishes), default=wish)
    if rule.window_s and (window.since is None or now - window.since < rule.window_s):
        steady = current
    if steady < wish:
        by.append("scaleUpWindow")
        wish = max(current, steady)
    ceilings = []
    for rate in rule.rates:
        start = _at_start(window, current, rate.period_s, now)
        if rate.pods is not None:
            ceilings.append(start + rate.pods)
        if rate.percent is not None:
            ceilings.append(max(start + 1, math.ceil(start * (1 + rate.percent / 100))))
    if ceilings and wish > (ceiling := min(ceilings) if rule.strictest else max(ceilings)):
        by.append("scaleUpRate")
        wish = max(current, ceiling)
    return wish


def _downwards(wish: int, current: int, rule: Direction, window: Window, by: list[str], now: float) -> int:
    if rule.disabled:
        by.append("scaleDownDisabled")
        return current
    steady = max((m.replicas for m in window.holds if m.at > now - rule.window_s), default=wish)
    if rule.window_s and (window.since is None or now - window.since < rule.window_s):
        steady = current
    if steady > wish:
        by.append("scaleDownWindow")
        wish = min(current, steady)
    floors = []
    for rate in rule.rates:
        start = _at_start(window, current, rate.period_s, now)
        if rate.pods is not None:
            floors.append(start - rate.pods)
        if rate.percent is not None:
            floors.append(math.floor(start * (1 - rate.percent / 100)))
    if floors and wish < (floor := max(floors) if rule.strictest else min(floors)):
        by.append("scaleDownRate")
        wish = min(current, floor)
    return wish


def _at_start(window: Window, current: int, period_s: float, now: float) -> int:
    return current - sum(m.replicas for m in window.changes if m.at > now - period_s)
