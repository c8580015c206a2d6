"""Turning cumulative reports into what happened since the last look, so that no restart can make a number negative."""

from __future__ import annotations

from dataclasses import replace

from tidegate_operator.decide.scaling_data import Supply, is_recent, is_stalled
from tidegate_operator.decide.scaling_memory import COLD_STARTS_KEPT, Latencies, Learned, Memory, Seen, Tick, Window
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.observed import LoadReport, Phase, ReplicaFacts, ServiceObserved

LATENCY_WINDOW_S = 60.0
MOST_TICKS = 400
LONGEST_BURDEN_S = 300.0
_CLOCK_STEP_S = 1.0
"""The API server tells times in whole seconds."""


def look(memory: Memory, observed: ServiceObserved, supply: Supply, policy: ScalingPolicy, now: float) -> Memory:
    """Add this look to the window. A look that is not later than the last adds nothing."""
    window = memory.window
    since = now if window.since is None else window.since
    before = window.ticks[-1].at if window.ticks else since
    if now <= before and window.ticks:
        return memory
    known = {seen.uid: seen for seen in window.seen}
    ticks = tuple(t for t in window.ticks if now - LATENCY_WINDOW_S < t.at)
    newest_ready_at = max(memory.learned.newest_ready_at, supply.newest_ready_at)
    if newest_ready_at > memory.learned.newest_ready_at:
        ticks = tuple(replace(t, fresh=Latencies()) for t in ticks)
    newer = window.since is None or newest_ready_at > memory.learned.newest_ready_at
    recent = [r for r in supply.ready if is_recent(r, policy)]
    burdened = _burdened(recent, window.burdened, newest_ready_at, newer, policy.queue_depth, now)
    tick = Tick(at=now, seconds=max(0.0, now - before))
    for replica in observed.replicas:
        behind = replica.uid in burdened or replica.uid in window.burdened
        tick = _add(tick, replica, known.get(replica.uid), now - since, newest_ready_at, behind)
    loads = [r.load for r in recent if r.load]
    representative = [r.load for r in recent if r.load and r.uid not in burdened and not is_stalled(r.load, policy)]
    tick = replace(
        tick,
        inside=float(sum(load.running + load.waiting for load in loads)),
        waiting=sum(load.waiting for load in representative),
        unburdened=len(representative),
        queueing=sum(1 for load in representative if load.waiting),
        ready=len(supply.ready),
    )
    held = observed.gateway.held if observed.gateway else 0
    active = bool(tick.arrived or tick.inside or held or (observed.replicas and not supply.ready))
    return Memory(
        learned=replace(_learn_cold_starts(memory.learned, window, observed), newest_ready_at=newest_ready_at),
        window=replace(
            window,
            since=since,
            seen=tuple(seen for r in observed.replicas if (seen := _seen(known.get(r.uid), r, now))),
            starting=_starting(window, observed),
            burdened=burdened,
            active_at=now if active or window.active_at is None else window.active_at,
            ticks=(*ticks, tick)[-MOST_TICKS:],
        ),
    )


def _burdened(
    recent: list[ReplicaFacts],
    before: frozenset[str],
    newest_ready_at: float,
    newer: bool,
    queue_depth: float,
    now: float,
) -> frozenset[str]:
    """Pods with a backlog from before the newest replica was ready; where that is all of them, none is left out."""
    if now - newest_ready_at > LONGEST_BURDEN_S:
        return frozenset()
    burdened = frozenset(
        r.uid
        for r in recent
        if r.load and r.load.waiting > queue_depth and r.ready_at != newest_ready_at and (newer or r.uid in before)
    )
    return burdened if len(burdened) < len(recent) else frozenset()


def _is_news(seen: Seen | None, load: LoadReport) -> bool:
    return seen is None or seen.load.boot != load.boot or load.uptime_s > seen.load.uptime_s


def _seen(seen: Seen | None, replica: ReplicaFacts, now: float) -> Seen | None:
    if replica.load is None or replica.load_age_s is None or not _is_news(seen, replica.load):
        return seen
    return Seen(uid=replica.uid, load=replica.load, at=now - replica.load_age_s)


def _add(
    tick: Tick, replica: ReplicaFacts, seen: Seen | None, watched_s: float, newest_ready_at: float, behind: bool
) -> Tick:
    """Count what one pod did since its last report. One that began while we watched counts from zero; of one found
    running, as after a restart of the operator, the past is unknown and left out."""
    load = replica.load
    if load is None or replica.load_age_s is None or not _is_news(seen, load):
        return tick
    if seen is None and load.uptime_s > watched_s:
        return tick
    earlier = seen.load if seen is not None and seen.load.boot == load.boot else None
    span = max(1e-3, load.uptime_s - (earlier.uptime_s if earlier else 0.0))
    share = min(1.0, LATENCY_WINDOW_S / span)
    now, then = load.counters, earlier.counters if earlier else None
    tokens = share * (
        _grown(now.prompt_tokens, then.prompt_tokens if then else 0)
        + _grown(now.generated_tokens, then.generated_tokens if then else 0)
    )
    stepped = _grown(now.steps, then.steps if then else 0) > 0
    full = earlier is not None and stepped and _is_full(load) and _is_full(earlier)
    latencies = _latencies_since(load, earlier)
    began = tick.at - replica.load_age_s - span
    return replace(
        tick,
        arrived=tick.arrived + share * _grown(now.received, then.received if then else 0),
        finished=tick.finished + share * _grown(now.finished, then.finished if then else 0),
        tokens=tick.tokens + tokens,
        running_grown=tick.running_grown + load.running - (earlier.running if earlier else 0),
        full_seconds=tick.full_seconds + (span * share if full else 0.0),
        full_tokens=tick.full_tokens + (tokens if full else 0.0),
        latencies=Latencies.merged((tick.latencies, latencies)),
        fresh=Latencies.merged((tick.fresh, _fresh(latencies, replica, earlier, began, newest_ready_at, behind))),
    )


def _grown(total: int, before: int) -> int:
    """How much a counter grew; one that fell began again at zero."""
    return total - before if total >= before else total


def _latencies_since(load: LoadReport, earlier: LoadReport | None) -> Latencies:
    if earlier is None:
        return Latencies(ttft=load.sketches.ttft, tpot=load.sketches.tpot, e2e=load.sketches.e2e)
    return Latencies(
        ttft=load.sketches.ttft.since(earlier.sketches.ttft),
        tpot=load.sketches.tpot.since(earlier.sketches.tpot),
        e2e=load.sketches.e2e.since(earlier.sketches.e2e),
    )


def _fresh(
    latencies: Latencies,
    replica: ReplicaFacts,
    earlier: LoadReport | None,
    began: float,
    newest_ready_at: float,
    behind: bool,
) -> Latencies:
    """The part of `latencies` that only requests made which came after the newest replica was ready.

    All that waited when the interval began had to come after it, and not `behind` a backlog from before; for whole
    answers, all that ran too, but an answer of many minutes does not blind us for longer than the window.
    """
    if replica.ready_at == newest_ready_at:
        return latencies
    oldest_waiting = (earlier.oldest_waiting_s or 0.0) if earlier else 0.0
    oldest = max(oldest_waiting, (earlier.oldest_unfinished_s or 0.0) if earlier else 0.0)
    since = newest_ready_at + _CLOCK_STEP_S
    nothing = Latencies()
    whole = began - oldest >= since or began >= since + LATENCY_WINDOW_S
    return Latencies(
        ttft=latencies.ttft if began - oldest_waiting >= since and not behind else nothing.ttft,
        tpot=latencies.tpot if whole else nothing.tpot,
        e2e=latencies.e2e if whole and not behind else nothing.e2e,
    )


def _is_full(load: LoadReport) -> bool:
    return load.waiting > 0 or (load.slots > 0 and load.running >= load.slots)


def _starting(window: Window, observed: ServiceObserved) -> frozenset[str]:
    """Pods that were watched from before they were ever ready."""
    waiting = {r.uid for r in observed.replicas if r.phase is not Phase.READY}
    begun = {r.uid for r in observed.replicas if r.phase in (Phase.PENDING, Phase.STARTING) and not r.restarts}
    heard = {seen.uid for seen in window.seen if seen.load.state == "ready"}
    return frozenset((window.starting & waiting) | (begun - heard))


def _learn_cold_starts(learned: Learned, window: Window, observed: ServiceObserved) -> Learned:
    """Time without a node is no cold start."""
    took = [
        r.ready_at - (r.created_at if r.scheduled_at is None else r.scheduled_at)
        for r in sorted(observed.replicas, key=lambda r: (r.ready_at or 0.0, r.uid))
        if r.phase is Phase.READY and r.uid in window.starting and r.ready_at is not None and not r.restarts
    ]
    if not took:
        return learned
    samples = (*learned.cold_starts_s, *(min(7200.0, max(1.0, seconds)) for seconds in took))
    return replace(learned, cold_starts_s=samples[-COLD_STARTS_KEPT:])
