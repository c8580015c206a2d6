"""How many replicas' worth of load there is, from arrivals and what a full replica was seen to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate_operator.decide.capacity import LOWEST_UTILISATION, safe_utilisation, utilisation_bound
from tidegate_operator.decide.scaling_data import Supply
from tidegate_operator.decide.scaling_memory import Learned, Tick, Window
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.observed import GatewayFacts

DEMAND_WINDOW_S = 20.0
_SURE_WINDOWS_S = (6.0, 20.0)
_LONG_WINDOW_S = 60.0
"""Rare long requests show only here; as far as they still come."""
_SURE_Z = 1.64
"""One-sided 95 %."""
_FEWEST_FINISHED = 5
_FEWEST_FULL_S = 4.0
_FORGET_UTILISATION_S = 3600.0
_MARGIN = 0.95
LEAST_EFFICIENCY = 0.3
MARGIN_LOW, MARGIN_HIGH = 0.85, 0.97
"""One finding lowers the efficiency by 3 to 15 %."""
_BOUND_MARGIN = 0.7
"""Few requests inside by chance are not less load; a capacity learned long ago and wrong by a factor is found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load now, and the measure it is compared with."""

    watched_s: float
    """How long this process has looked, up to the longest window: means over less say little."""
    arrivals_per_s: float
    slots: int
    """A ready replica's own, or the spec's before one has said."""
    running: int
    waiting: int
    """In replicas without an old backlog, of which there are `unburdened`."""
    unburdened: int
    waiting_everywhere: int
    """In all ready replicas that were heard."""
    held: int
    """At the gateway, the oldest of them for `held_for_s`."""
    held_for_s: float
    waiting_per_replica: float
    """Mean over the demand window, of replicas without an old backlog."""
    queueing_share: float
    """Share of these replicas in which anything waits: where one is full and the others are not, more do not help."""
    inside_per_replica: float
    """Mean requests running or waiting per ready replica, over the demand window."""
    inside_per_replica_long: float
    """The same over the longest window there is."""
    occupied: float
    """Replicas' worth of cache or slots that running requests hold."""
    load: float | None
    """Arrivals in replicas that run flat out; None: no full replica was seen, or no request's size is known yet."""
    load_surely: float | None
    """The same less what chance may have added: growing is for load that is surely there, staying for what may be."""
    load_by_slots: float
    """Requests inside, in replicas with all slots taken: what is left to compare with where `load` is None."""
    load_at_most: float | None
    """What the ready replicas carry at most, as few requests are inside them; None: they are too full to tell."""
    utilisation: float
    """The share of its capacity a replica may be loaded with."""

    @property
    def inside(self) -> int:
        return self.running + self.waiting + self.held

    @property
    def predicted(self) -> float:
        """The load that decides whether fewer replicas would do."""
        if self.load is None:
            return self.load_by_slots
        return self.load if self.load_at_most is None else min(self.load, self.load_at_most)


def demand_of(
    window: Window,
    learned: Learned,
    supply: Supply,
    gateway: GatewayFacts | None,
    policy: ScalingPolicy,
    now: float,
) -> Demand:
    """Measure the last twenty seconds."""
    ticks = _within(window.ticks, now, DEMAND_WINDOW_S)
    seconds = sum(t.seconds for t in ticks)
    reported = [load.slots for load in supply.heard if load.slots]
    slots = max(1, min(reported) if reported else policy.slots)
    ready = max(1, len(supply.ready))
    inside = _mean([(t.inside / t.ready, t.seconds) for t in ticks if t.ready])
    settled = [t for t in ticks if t.unburdened and t.at > learned.newest_ready_at]
    waiting = _mean([(t.waiting / t.unburdened, t.seconds) for t in settled])
    arrivals = sum(t.arrived for t in ticks) / seconds if seconds else 0.0
    lasting = min(arrivals, _surely(window.ticks, now, _LONG_WINDOW_S))
    surely = max(lasting, *(_surely(window.ticks, now, span) for span in _SURE_WINDOWS_S))
    worth = learned.tokens_per_request / learned.capacity if learned.tokens_per_request and learned.capacity else None
    roomy = waiting < 0.5 and inside < 0.8 * slots
    utilisation = safe_utilisation(slots, policy.queue_depth)
    if learned.safe_utilisation is not None and now - (learned.safe_utilisation_at or now) < _FORGET_UTILISATION_S:
        utilisation = min(utilisation, learned.safe_utilisation)
    return Demand(
        watched_s=sum(t.seconds for t in window.ticks),
        arrivals_per_s=arrivals,
        slots=slots,
        running=sum(r.running for r in supply.heard),
        waiting=window.ticks[-1].waiting if window.ticks else 0,
        unburdened=window.ticks[-1].unburdened if window.ticks else 0,
        waiting_everywhere=sum(r.waiting for r in supply.recent),
        held=gateway.held if gateway else 0,
        held_for_s=(gateway.oldest_held_s or 0.0) if gateway else 0.0,
        waiting_per_replica=waiting,
        queueing_share=_mean([(t.queueing / t.unburdened, t.seconds) for t in settled]),
        inside_per_replica=inside,
        inside_per_replica_long=_mean([(t.inside / t.ready, t.seconds) for t in window.ticks if t.ready]),
        occupied=window.ticks[-1].occupied if window.ticks else 0.0,
        load=None if worth is None else arrivals * worth,
        load_surely=None if worth is None else surely * worth,
        load_by_slots=inside * ready / slots if supply.ready else 0.0,
        load_at_most=ready * utilisation_bound(inside) / _BOUND_MARGIN if roomy and supply.ready else None,
        utilisation=utilisation,
    )


def learn(learned: Learned, window: Window, now: float) -> Learned:
    """Take from the newest look what a full replica does in a second, and what a request costs."""
    if not window.ticks or window.ticks[-1].at != now:
        return learned
    ticks, newest = _within(window.ticks, now, DEMAND_WINDOW_S), window.ticks[-1]
    capacity = learned.capacity
    full_s, full_tokens = sum(t.full_seconds for t in ticks), sum(t.full_tokens for t in ticks)
    if newest.full_seconds and full_s >= _FEWEST_FULL_S and full_tokens > 0:
        seen = full_tokens / full_s
        weight = 1 - math.exp(-newest.full_seconds / DEMAND_WINDOW_S)
        capacity = seen if capacity is None else capacity + weight * (seen - capacity)
    seconds = sum(t.seconds for t in ticks)
    if capacity is not None and seconds >= DEMAND_WINDOW_S / 2 and all(t.ready for t in ticks):
        capacity = max(capacity, sum(t.tokens / t.ready for t in ticks) / seconds)
    per_request = learned.tokens_per_request
    finished = sum(t.finished for t in window.ticks)
    if newest.finished and finished >= _FEWEST_FINISHED:
        # What runs now has cost tokens too and finished nothing; on average it is half done.
        begun = 0.5 * max(0, sum(t.running_grown for t in window.ticks))
        per_request = sum(t.tokens for t in window.ticks) / (finished + begun) or per_request
    return replace(learned, capacity=capacity, tokens_per_request=per_request)


def less_efficient(learned: Learned, wanted: int, ready: int) -> Learned:
    """So many replicas were believed to be enough, and `ready` were not: each carries less than its model promises."""
    share = min(MARGIN_HIGH, max(MARGIN_LOW, wanted / max(1, ready)))
    return replace(learned, efficiency=max(LEAST_EFFICIENCY, learned.efficiency * share))


def too_much(learned: Learned, demand: Demand, ready: int, now: float) -> Learned:
    """The targets were missed with this load on so many replicas: plan with less from now on."""
    load = demand.load_by_slots if demand.load is None else demand.load
    share = min(demand.utilisation, max(LOWEST_UTILISATION, _MARGIN * load / max(1, ready)))
    return replace(learned, safe_utilisation=share, safe_utilisation_at=now)


def _surely(ticks: tuple[Tick, ...], now: float, span_s: float) -> float:
    """Arrivals per second over a span, less what chance may have added."""
    recent = _within(ticks, now, span_s)
    seconds, arrived = sum(t.seconds for t in recent), sum(t.arrived for t in recent)
    return max(0.0, arrived - _SURE_Z * math.sqrt(arrived)) / seconds if seconds >= span_s / 2 else 0.0


def _within(ticks: tuple[Tick, ...], now: float, seconds: float) -> tuple[Tick, ...]:
    return tuple(t for t in ticks if t.at > now - seconds)


def _mean(weighted: list[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / total if total else 0.0
