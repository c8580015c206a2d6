"""The two terms: queue depth sizes, p99 corrects. Each says how many replicas it wants, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate_operator.decide.capacity import replicas_for
from tidegate_operator.decide.latency import Opinion, Verdict
from tidegate_operator.decide.scaling_data import DataState, Supply
from tidegate_operator.decide.scaling_demand import DEMAND_WINDOW_S, Demand, less_efficient, too_much
from tidegate_operator.decide.scaling_memory import Learned
from tidegate_operator.decide.scaling_needs import CLEARED_S, Needs
from tidegate_operator.decide.scaling_policy import Metric, ScalingPolicy

MOST_FUTILE_STEPS = 2
_HOPELESS = 0.05
"""Share over target from which a replica that is nearly alone with a request is proof; below, it may be chance."""
_ROOM_BELOW = 0.92
"""Fewer replicas must hold with some room, or chance alone would take one away and bring it back."""
MISS_LASTS_S = 60.0
"""Late requests come in clusters: one cluster is not yet a replica too few."""
EXPLAINED = 0.3
"""A queue is no news where so much of it should be there, by what came and the replicas there were."""
_BETTER = 0.8
"""A step has helped where the share over target fell to this part of what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that the questions look at."""

    policy: ScalingPolicy
    current: int
    """Replicas of the live Deployment."""
    supply: Supply
    state: DataState
    demand: Demand
    verdicts: tuple[Verdict, ...]
    learned: Learned
    now: float
    missed_for_s: float = 0.0
    """How long a target has been missed without a break."""
    needs: Needs | None = None
    """None: no model of the replicas yet; then arrivals are compared with what full replicas were seen to do."""
    out_of_reach: frozenset[Metric] = frozenset()
    """Targets that not even a request alone on a replica meets."""

    @property
    def healthy(self) -> int:
        return len(self.supply.ready) - self.supply.stalled

    @property
    def settled(self) -> bool:
        """The last step has had its cold start and its effect can be seen, and nothing more is on its way."""
        stepped = self.learned.last_up_at is None or self.now - self.learned.last_up_at >= self.learned.cold_start_s
        seen = self.now - self.learned.newest_ready_at >= DEMAND_WINDOW_S
        return stepped and seen and not (self.supply.pending or self.supply.broken or self.supply.uncreated)

    @property
    def draining(self) -> bool:
        """What queues is the end of something: nothing or little comes, and the queue gets shorter."""
        demand = self.demand
        if demand.arrivals_per_s <= 0:
            return True
        if demand.load is not None and demand.load < 0.5 * demand.utilisation * self.healthy:
            return demand.waiting_per_replica >= 0.5
        return demand.waiting < 0.8 * demand.waiting_per_replica * demand.unburdened

    @property
    def few_requests_each(self) -> bool:
        """Nothing queues and batches are small: more replicas could not make a request faster."""
        demand = self.demand
        few = _few(demand)
        if demand.watched_s < DEMAND_WINDOW_S or demand.waiting > demand.unburdened:
            return False
        return demand.inside_per_replica_long <= few and demand.waiting_per_replica < 0.5 and not demand.held

    @property
    def expected_to_miss(self) -> bool:
        """By what came and the replicas there were, or by the places that are taken: then a miss is no news."""
        if self.needs is None:
            return False
        return self.needs.backlog > max(1.0, EXPLAINED * self.demand.waiting) or self.needs.occupied >= self.current

    @property
    def missed(self) -> Verdict | None:
        """The target that is missed worst; one out of reach only where that is all that is missed."""
        missed = [v for v in self.verdicts if v.opinion is Opinion.MISSED]
        reachable = [v for v in missed if v.target.metric not in self.out_of_reach]
        return max(reachable or missed, key=lambda v: v.surely_over) if missed else None

    @property
    def unattainable(self) -> bool:
        missed = self.missed
        if missed is not None and missed.target.metric in self.out_of_reach:
            return True
        hopeless = missed is not None and self.few_requests_each and missed.surely_over > _HOPELESS
        return hopeless or self.futile

    @property
    def futile(self) -> bool:
        """Steps were taken for the missed target, and its share over did not get better."""
        learned, missed = self.learned, self.missed
        if missed is None or learned.p99_share is None or learned.p99_steps < MOST_FUTILE_STEPS:
            return False
        return missed.share > _BETTER * learned.p99_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A number of replicas, before limits; `taken` is what to remember if it is followed."""

    term: str
    replicas: int
    reason: str
    message: str
    taken: Learned | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What one term asks for, for the status. None: it has no opinion."""

    name: str
    replicas: int | None
    message: str
    inputs: Mapping[str, float] = field(default_factory=dict)
    """The figures it looked at, by the names that the status shows."""


def by_arrivals(s: Situation) -> Wish | None:
    """More replicas because what arrives, or surely will have, needs them; before anything waits."""
    needs = s.needs
    if needs is None or needs.wanted <= s.current:
        return None
    model, ahead = needs.model, needs.forecast
    grows = f", growing to {ahead.ahead:.3g}" if ahead.growth > 1 else ""
    if needs.occupied >= needs.wanted:
        why = f"running requests fill {s.demand.occupied:.2g} replicas' places, and will fill {needs.occupied}"
    elif needs.surely >= needs.replayed:
        why = f"{ahead.surely:.3g} requests/s surely arrive"
    else:
        why = f"{ahead.now:.3g} requests/s arrive{grows}; the last minutes' arrivals would have been late on fewer"
    return Wish(
        term="arrivals",
        replicas=needs.wanted,
        reason="LoadRose",
        message=f"{why}; a replica carries {model.rate:.3g}/s ({model.concurrency:.3g} at a time, bound by "
        f"{model.bound.value})",
    )


def by_queue(s: Situation) -> Wish | None:
    """More replicas because too many wait: sized by arrivals over what a replica does, not by the length of the queue
    (100 requests/s on replicas that do 10/s need 12; queue over target would ask for hundreds after a minute)."""
    demand, policy = s.demand, s.policy
    waiting = demand.waiting + demand.held
    if waiting <= policy.queue_depth * demand.unburdened:
        return None
    need = 0 if s.needs is not None else _replicas_needed(s)
    if need > s.current:
        who = f"{_count(waiting, 'request waits', 'requests wait')} for {_count(demand.unburdened, 'ready replica')}"
        why = (
            f"{demand.arrivals_per_s:.3g} requests/s are worth {demand.load:.2f} full replicas, "
            f"loaded to {demand.utilisation:.0%} at most"
            if demand.load is not None
            else f"{demand.inside} requests are inside, a replica takes {demand.slots} and may let "
            f"{policy.queue_depth:g} wait"
        )
        return Wish(term="queueDepth", replicas=need, reason="QueueDepth", message=f"{who}: {why}")
    everywhere = s.healthy == len(s.supply.ready) and demand.queueing_share >= 0.5
    allowed = max(policy.queue_depth, s.needs.queue_in_time if s.needs else 0.0)
    if s.settled and everywhere and not (s.draining or s.expected_to_miss) and demand.waiting_per_replica > allowed:
        return Wish(
            term="queueDepth",
            replicas=s.current + max(1, math.ceil(s.current / 10)),
            reason="QueueDepth",
            message=f"{demand.waiting_per_replica:.1f} requests wait per replica over {DEMAND_WINDOW_S:.0f} s, "
            f"{allowed:.2g} are allowed; capacity is less than was believed",
            taken=_carries_less(s),
        )
    return None


def for_held(s: Situation) -> int:
    """A place for each request that the gateway holds; where it is known what a replica carries, no more than the rate
    at which they came needs, and a few to clear them: three replicas that crashed need no sixteen in their place."""
    demand = s.demand
    places = math.ceil(demand.held / (demand.slots + s.policy.queue_depth))
    if s.needs is None or not demand.held:
        return places
    rate = s.needs.model.rate
    coming = math.ceil(demand.held / max(1.0, demand.held_for_s) / rate)
    return min(places, coming + math.ceil(demand.held / rate / CLEARED_S))


def by_p99(s: Situation) -> Wish | None:
    """More replicas because a p99 target is surely missed, once per cold start, while it helps."""
    missed = s.missed
    if missed is None or s.unattainable or s.few_requests_each or not s.settled or not s.state.complete:
        return None
    if s.draining or not missed.lately_over:
        return None
    if s.needs is not None and (s.expected_to_miss or s.missed_for_s < MISS_LASTS_S):
        return None
    learned, share = s.learned, missed.share
    helped = learned.p99_share is None or share <= _BETTER * learned.p99_share
    ready = len(s.supply.ready)
    taken = replace(_carries_less(s), p99_steps=1 if helped else learned.p99_steps + 1, p99_share=share)
    return Wish(
        term="p99",
        replicas=max(s.current, ready) + max(1, math.ceil(ready / 10)),
        reason="LatencyOverTarget",
        message=say(missed),
        taken=taken,
    )


def _carries_less(s: Situation) -> Learned:
    """The targets were missed though this was predicted to hold: plan with less from now on."""
    ready = len(s.supply.ready)
    if s.needs is not None:
        return less_efficient(s.learned, s.needs.wanted, ready + 1)
    return too_much(s.learned, s.demand, ready, s.now)


def unattainable(learned: Learned, missed: Verdict) -> Learned:
    """No more steps for this target, and no veto on going down, until it is met or nothing is asked for a while."""
    return replace(
        learned,
        p99_steps=MOST_FUTILE_STEPS,
        p99_share=missed.share if learned.p99_share is None else min(missed.share, learned.p99_share),
        safe_utilisation=None,
        safe_utilisation_at=None,
    )


def would_hold(s: Situation) -> int:
    """Replicas that hold the targets by prediction: by load, by requests inside now, and by the p99 scaled up."""
    demand, policy = s.demand, s.policy
    if s.needs is not None:
        inside = math.ceil(demand.inside / (s.needs.model.concurrency + policy.queue_depth))
        missed = len(s.supply.ready) if s.missed is not None and not s.unattainable and not s.draining else 0
        return max(s.needs.staying, inside, missed)
    by_load = max(
        replicas_for(demand.predicted, demand.utilisation),
        min(s.current, replicas_for(demand.predicted, _ROOM_BELOW * demand.utilisation)),
    )
    by_inside = math.ceil(demand.inside / (demand.slots + policy.queue_depth))
    return max(by_load, by_inside, *(_held_by_p99(s, v) for v in s.verdicts), 0)


def _held_by_p99(s: Situation, verdict: Verdict) -> int:
    """What a request takes beyond the fastest ones is assumed to grow with the load of each replica."""
    ready = len(s.supply.ready)
    if s.unattainable or verdict.opinion is Opinion.NONE or verdict.p99_s is None or verdict.fastest_s is None:
        return 0
    if verdict.opinion is Opinion.MISSED:
        return ready
    room, beyond = verdict.target.seconds - verdict.fastest_s, verdict.p99_s - verdict.fastest_s
    if room <= 0:
        return 0
    held = min(ready, math.ceil(round(ready * beyond / room, 6)))
    few = _few(s.demand)
    return min(held, math.ceil(round(s.demand.inside_per_replica * ready / few, 6)))


def say(verdict: Verdict) -> str:
    """One clause: how many requests took longer than the target."""
    target = verdict.target
    p99 = f", p99 is {verdict.p99_s:.3g} s" if verdict.p99_s is not None else ""
    return (
        f"{verdict.over} of {verdict.samples} requests were over the {target.metric.value.upper()} target of "
        f"{target.seconds:g} s{p99}"
    )


def _replicas_needed(s: Situation) -> int:
    demand = s.demand
    room = demand.slots + s.policy.queue_depth
    if demand.load_surely is not None and s.healthy:
        return replicas_for(demand.load_surely, demand.utilisation)
    need = math.ceil(demand.inside / room)
    if not s.healthy:
        return max(1, need)
    # What a replica does is not known yet, and a queue grows while one starts: at most double.
    return min(need, 2 * s.healthy)


def _few(demand: Demand) -> float:
    return max(1.5, demand.slots / 8)


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"
