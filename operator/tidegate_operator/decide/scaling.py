"""The number of replicas: facts in, a decision out. `now` is an argument; the chain of questions is in `_ask`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate_operator.decide.bounds import bounded, bounds_terms, named
from tidegate_operator.decide.capacity import replicas_for
from tidegate_operator.decide.latency import InFlight, Opinion, Verdict, judge
from tidegate_operator.decide.replica_model import out_of_reach
from tidegate_operator.decide.scaling_data import DataState, Supply, is_recent, state_of, supply_of
from tidegate_operator.decide.scaling_demand import DEMAND_WINDOW_S, Demand, demand_of, learn
from tidegate_operator.decide.scaling_inputs import terms_of
from tidegate_operator.decide.scaling_limits import limit, remember, with_window
from tidegate_operator.decide.scaling_memory import Learned, Memory, Moment, Window
from tidegate_operator.decide.scaling_needs import learn_equipment, needs_of, trusted_again
from tidegate_operator.decide.scaling_peaks import with_peak
from tidegate_operator.decide.scaling_policy import Metric, Mode, ScalingPolicy
from tidegate_operator.decide.scaling_terms import (
    Situation,
    Term,
    Wish,
    by_arrivals,
    by_p99,
    by_queue,
    for_held,
    say,
    unattainable,
    would_hold,
)
from tidegate_operator.decide.scaling_window import LATENCY_WINDOW_S, heard_anew, look
from tidegate_operator.observed import ServiceObserved, Sketch


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many replicas to run, and why; the same reason and message go to the status, the event and the log."""

    replicas: int
    recommended: int
    """What scaling would choose; differs from `replicas` where somebody else does."""
    reason: str
    message: str
    term: str
    """Which question gave the answer."""
    terms: tuple[Term, ...]
    limited_by: tuple[str, ...]
    data_state: DataState
    supply: Supply
    demand: Demand
    verdicts: tuple[Verdict, ...]
    unattainable: bool
    memory: Memory


def decide(policy: ScalingPolicy, observed: ServiceObserved, memory: Memory, now: float) -> Decision:
    """Look, ask, limit. Pure: the same facts, memory and time give the same decision."""
    policy = bounded(policy, memory.learned.cold_start_s, now)
    observed = heard_anew(observed, memory.window, now)
    supply = supply_of(observed, policy, memory.learned.cold_start_s, now)
    memory = look(memory, observed, supply, policy, now)
    learned = learn(memory.learned, memory.window, now)
    learned = learn_equipment(learned, supply.heard, memory.window.sums)
    passed = memory.window.ticks[-1].seconds if memory.window.ticks else 0.0
    learned = trusted_again(learned, passed)
    held = observed.gateway.held if observed.gateway else 0
    arrived = memory.window.ticks[-1].arrived if memory.window.ticks else 0.0
    state = state_of(supply, held, arrived)
    verdicts = _judge_all(policy, observed, memory.window, learned, now)
    opinions = {v.opinion for v in verdicts}
    quiet = memory.window.active_at is not None and now - memory.window.active_at >= LATENCY_WINDOW_S
    if quiet or (Opinion.MET in opinions and Opinion.MISSED not in opinions):
        learned = replace(learned, p99_steps=0, p99_share=None)
    live = observed.deployment.replicas if observed.deployment else None
    beyond = frozenset[Metric]()
    if learned.equipment is not None and learned.size is not None:
        beyond = out_of_reach(learned.equipment, learned.size, policy)
    reachable = replace(policy, targets=tuple(t for t in policy.targets if t.metric not in beyond))
    needs = needs_of(memory.window, learned, reachable, policy.minimum if live is None else live)
    asked = policy
    dispersion = needs.forecast.dispersion if needs else None
    policy = with_window(policy, memory.window.history, dispersion, learned.cold_start_s)
    situation = Situation(
        policy=policy,
        current=max(1, policy.minimum) if live is None else live,
        supply=supply,
        state=state,
        demand=demand_of(memory.window, learned, supply, observed.gateway, policy, now),
        verdicts=verdicts,
        learned=learned,
        now=now,
        needs=needs,
        out_of_reach=beyond,
    )
    if situation.missed and situation.unattainable:
        learned = unattainable(learned, situation.missed)
    if situation.needs is not None:
        memory = with_peak(Memory(learned=learned, window=memory.window), situation.needs, passed, now)
        learned = memory.learned
    missed_since = memory.window.missed_since or now
    memory = replace(memory, window=replace(memory.window, missed_since=missed_since if situation.missed else None))
    situation = replace(situation, missed_for_s=now - missed_since)
    current = situation.current
    hold = _hold(situation, memory.window)
    wish = _ask(situation, hold)
    window = remember(memory.window, wish.replicas, max(hold, wish.replicas), asked, now)
    limited = limit(wish.replicas, current, policy, window, now)
    wish = named(wish, limited, policy)
    recommended = policy.replicas if policy.mode is Mode.FIXED else limited.replicas
    replicas, reason, message = _who_chooses(policy, live, recommended, wish, limited.by)
    changed = live is not None and replicas != live
    if changed:
        learned = replace(
            wish.taken if wish.taken is not None and policy.mode is Mode.AUTO else learned,
            hold_s=learned.hold_s,
            last_change_at=now,
            last_up_at=now if replicas > current else learned.last_up_at,
        )
        window = replace(window, changes=(*window.changes, Moment(at=now, replicas=replicas - current))[-64:])
    return Decision(
        replicas=replicas,
        recommended=recommended,
        reason=reason,
        message=message,
        term=wish.term,
        terms=(*terms_of(situation, hold), *bounds_terms(policy)),
        limited_by=() if policy.mode is Mode.FIXED else limited.by,
        data_state=state,
        supply=supply,
        demand=situation.demand,
        verdicts=verdicts,
        unattainable=situation.unattainable,
        memory=Memory(learned=learned, window=window),
    )


def _ask(s: Situation, hold: int) -> Wish:
    """The questions in order; the first that has an answer gives it."""
    for question in (_from_zero, _unheard, _stalled, by_arrivals, by_queue, by_p99):
        wish = question(s)
        if wish is not None:
            return wish
    return _steady(s, hold)


def _from_zero(s: Situation) -> Wish | None:
    if s.current > 0:
        return None
    if s.demand.held:
        need = for_held(s)
        message = f"{s.demand.held} requests are held at the gateway"
        return Wish(term="gateway", replicas=need, reason="RequestsHeld", message=message)
    return Wish(term="zero", replicas=0, reason="ScaledToZero", message="nothing has been asked for")


def _unheard(s: Situation) -> Wish | None:
    """Without data only growth at the gateway may move anything, and only upwards."""
    if s.state not in (DataState.NO_REPLICAS, DataState.STALE, DataState.MISSING):
        return None
    need = for_held(s)
    if need > s.current:
        message = f"{s.demand.held} requests are held at the gateway"
        return Wish(term="gateway", replicas=need, reason="RequestsHeld", message=message)
    ready = len(s.supply.ready)
    reason, message = {
        DataState.NO_REPLICAS: ("WaitingForReplicas", f"none of {s.current} replicas is ready yet"),
        DataState.STALE: ("MetricsStale", f"{ready} ready replicas have fallen silent; the number stays"),
        DataState.MISSING: ("MetricsMissing", f"{ready} ready replicas were never heard; the number stays"),
    }[s.state]
    return Wish(term="data", replicas=s.current, reason=reason, message=message)


def _stalled(s: Situation) -> Wish | None:
    """A replica that has work and takes no step is pressure: one in its place, while any other works."""
    if s.state is not DataState.STALLED:
        return None
    ready, stalled = len(s.supply.ready), s.supply.stalled
    wanted = s.current
    if s.healthy or ready == 1:
        working = replicas_for(s.demand.load, s.demand.utilisation) if s.demand.load is not None else 1
        wanted = max(s.current, max(1, working) + stalled)
    queued = by_queue(s) if s.healthy else None
    if queued is not None and queued.replicas > wanted:
        return queued
    message = f"{stalled} of {ready} ready replicas have work and take no step"
    return Wish(term="stalled", replicas=wanted, reason="Stalled", message=message)


def _steady(s: Situation, hold: int) -> Wish:
    demand = s.demand
    if s.state is DataState.PARTIAL:
        silent = len(s.supply.ready) - len(s.supply.recent)
        message = f"{silent} of {len(s.supply.ready)} ready replicas are silent; the number does not fall"
        return Wish(term="data", replicas=s.current, reason="MetricsPartial", message=message)
    if s.missed is not None and s.unattainable:
        alone = s.missed.target.metric in s.out_of_reach
        why = "which a request alone on a replica misses too" if alone else "though few requests share a replica"
        message = f"{say(s.missed)}, {why}: more would not help"
        return Wish(term="p99", replicas=min(hold, s.current), reason="SLOUnattainable", message=message)
    if hold < s.current:
        message = (
            f"{demand.arrivals_per_s:.3g} requests/s and {demand.inside} requests inside are predicted to hold on "
            f"{hold} replicas"
        )
        return Wish(term="prediction", replicas=hold, reason="LoadFell", message=message)
    if s.missed is not None:
        return Wish(term="p99", replicas=s.current, reason="WaitingForEffect", message=say(s.missed))
    message = f"{demand.arrivals_per_s:.3g} requests/s, {demand.inside} requests inside {s.healthy} ready replicas"
    return Wish(term="steady", replicas=s.current, reason="Steady", message=message)


def _hold(s: Situation, window: Window) -> int:
    """Replicas that would do. Where the data is not complete, or too short, no fewer than there are."""
    if not s.state.complete or window.since is None or s.now - window.since < DEMAND_WINDOW_S:
        return s.current
    hold = would_hold(s)
    after = s.policy.scale_to_zero_after_s
    if s.policy.minimum == 0 and hold == 0 and after is not None and s.state is DataState.IDLE:
        began = max(window.active_at or s.now, window.since or s.now)
        return 0 if s.now - began >= after else 1
    return max(1, hold)


def _judge_all(
    policy: ScalingPolicy, observed: ServiceObserved, window: Window, learned: Learned, now: float
) -> tuple[Verdict, ...]:
    ages, tpots = [], []
    for replica in observed.replicas:
        if replica.load is None or not is_recent(replica, policy) or replica.ready_at is None:
            continue
        tpots.append(replica.load.running_tpot)
        if replica.uid not in window.burdened:
            since = now - (replica.load_age_s or 0.0) - learned.newest_ready_at
            ages.append(replica.load.waiting_ages.at_most(since))
    in_flight = InFlight(waiting_ages=Sketch.merged(ages), running_tpot=Sketch.merged(tpots))
    return tuple(judge(target, window.ticks, now - DEMAND_WINDOW_S, in_flight) for target in policy.targets)


def _who_chooses(
    policy: ScalingPolicy, live: int | None, recommended: int, wish: Wish, by: tuple[str, ...]
) -> tuple[int, str, str]:
    if policy.paused:
        stays = policy.replicas if live is None else live
        return stays, "Paused", f"spec.paused is set: {stays} replicas stay"
    if policy.mode is Mode.FIXED:
        return policy.replicas, "Fixed", f"{policy.replicas} replicas are asked for, and nothing scales them"
    if policy.mode is Mode.EXTERNAL:
        return policy.replicas, "External", f"{policy.replicas} replicas are asked for through the scale subresource"
    limits = f" (limited by {', '.join(by)})" if by else ""
    if policy.mode is Mode.ADVISORY:
        message = f"{recommended} replicas would be chosen: {wish.message}{limits}"
        return policy.replicas, f"Advisory{wish.reason}", message
    return recommended, wish.reason, f"{recommended} replicas: {wish.message}{limits}"
