"""Turning cumulative reports into what happened since the last look, so that no restart can make a number negative."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate_operator.decide.scaling_data import Supply, is_recent, is_stalled
from tidegate_operator.decide.scaling_history import Span
from tidegate_operator.decide.scaling_memory import (
    COLD_STARTS_KEPT,
    Latencies,
    Learned,
    Memory,
    Seen,
    Sums,
    Tick,
    Window,
)
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.observed import LoadReport, Phase, ReplicaFacts, ServiceObserved
from tidegate_operator.observed_load import Counters
from tidegate_operator.observed_sketch import EMPTY

LATENCY_WINDOW_S = 60.0
MOST_TICKS = 400
LONGEST_BURDEN_S = 300.0
SIZES_FADE_S = 600.0
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
    counts: list[_Counted] = []
    fresh: list[Latencies] = []
    for replica in observed.replicas:
        counted = _count(replica, known.get(replica.uid), now, now - since)
        if counted is not None:
            behind = replica.uid in burdened or replica.uid in window.burdened
            counts.append(counted)
            fresh.append(_fresh(counted, replica, newest_ready_at, behind))
    everything = Latencies.merged(tuple(c.latencies for c in counts))
    all_fresh = all(counted.latencies is part for counted, part in zip(counts, fresh, strict=True))
    loads = [r.load for r in recent if r.load]
    representative = [r.load for r in recent if r.load and r.uid not in burdened and not is_stalled(r.load, policy)]
    tick = Tick(
        at=now,
        seconds=max(0.0, now - before),
        arrived=sum((c.share * c.arrived for c in counts), 0.0),
        finished=sum((c.share * c.finished for c in counts), 0.0),
        tokens=sum((c.tokens for c in counts), 0.0),
        running_grown=sum(c.running_grown for c in counts),
        waiting_grown=sum(c.waiting_grown for c in counts),
        prompt_tokens=sum((c.prompt_tokens for c in counts), 0.0),
        kv_tokens=float(sum(load.kv_blocks.used * load.kv_blocks.size for load in loads)),
        running=float(sum(load.running for load in loads)),
        occupied=sum(_occupied(load) for load in loads),
        spans=tuple(Span(c.span, float(c.arrived)) for c in counts if c.arrived),
        inside=float(sum(load.running + load.waiting for load in loads)),
        waiting=sum(load.waiting for load in representative),
        waiting_everywhere=sum(load.waiting for load in loads),
        unburdened=len(representative),
        queueing=sum(1 for load in representative if load.waiting > policy.queue_depth),
        ready=len(supply.ready),
        full_seconds=sum((c.span * c.share for c in counts if c.full), 0.0),
        full_tokens=sum((c.tokens for c in counts if c.full), 0.0),
        latencies=everything,
        fresh=everything if all_fresh else Latencies.merged(tuple(fresh)),
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
            history=window.history.with_look(
                tick.seconds, _when_asked(tick.spans, tick.seconds, held - window.held), tick.ready, tick.occupied
            ),
            held=held,
            sums=_summed(window.sums, tick),
        ),
    )


def heard_anew(observed: ServiceObserved, window: Window, now: float) -> ServiceObserved:
    """The same facts, but a report that says what its pod has said before is as old as it was: a process that hangs,
    or a cache in between, answers with the past for ever, and reads as a pod to which nothing comes."""
    known = {seen.uid: seen for seen in window.seen}
    replicas = tuple(_heard_anew(r, known.get(r.uid), now) for r in observed.replicas)
    return observed if replicas == observed.replicas else replace(observed, replicas=replicas)


def _heard_anew(replica: ReplicaFacts, seen: Seen | None, now: float) -> ReplicaFacts:
    if seen is None or replica.load is None or replica.load_age_s is None or _is_news(seen, replica.load):
        return replica
    if (age := now - seen.at) <= replica.load_age_s + _CLOCK_STEP_S:
        return replica
    return replace(replica, load_age_s=age, scrape_error=replica.scrape_error or "repeats an old report")


def _when_asked(spans: tuple[Span, ...], seconds: float, held_more: int) -> tuple[Span, ...]:
    """Arrivals at the gateway and the pods: what is held counts when it comes, and is no burst when it is let go."""
    if held_more >= 0:
        return (*spans, Span(seconds, float(held_more))) if held_more else spans
    arrived = sum(span.arrived for span in spans)
    new = max(0.0, 1 + held_more / arrived) if arrived else 0.0
    return tuple(Span(span.seconds, span.arrived * new) for span in spans)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What one pod did since its last report."""

    span: float
    """Seconds that are counted, which ended when the report was made; `share` of them are within the window."""
    share: float
    arrived: int
    finished: int
    prompt_tokens: float
    tokens: float
    """These two of the window only."""
    running_grown: int
    waiting_grown: int
    full: bool
    latencies: Latencies
    earlier: LoadReport | None
    began: float
    """When the time began that was counted."""


def _count(replica: ReplicaFacts, seen: Seen | None, now: float, watched_s: float) -> _Counted | None:
    """Count what one pod did since its last report. One that began while we watched counts from zero; of one found
    running, as after a restart of the operator, the past is unknown and left out."""
    load = replica.load
    if load is None or replica.load_age_s is None or not _is_news(seen, load):
        return None
    if seen is None and load.uptime_s > watched_s:
        return None
    earlier = seen.load if seen is not None and seen.load.boot == load.boot else None
    span = max(1e-3, load.uptime_s - (earlier.uptime_s if earlier else 0.0))
    share = min(1.0, LATENCY_WINDOW_S / span)
    told, then = load.counters, earlier.counters if earlier else Counters()
    prompt_tokens = share * _grown(told.prompt_tokens, then.prompt_tokens)
    stepped = _grown(told.steps, then.steps) > 0
    return _Counted(
        span=span,
        share=share,
        arrived=_grown(told.received, then.received),
        finished=_grown(told.finished, then.finished),
        prompt_tokens=prompt_tokens,
        tokens=prompt_tokens + share * _grown(told.generated_tokens, then.generated_tokens),
        running_grown=load.running - (earlier.running if earlier else 0),
        waiting_grown=load.waiting - (earlier.waiting if earlier else 0),
        full=earlier is not None and stepped and _is_full(load) and _is_full(earlier),
        latencies=_latencies_since(load, earlier),
        earlier=earlier,
        began=now - replica.load_age_s - span,
    )


def _summed(sums: Sums, tick: Tick) -> Sums:
    """One look later."""
    fade = math.exp(-tick.seconds / SIZES_FADE_S)
    return Sums(
        prompt_tokens=sums.prompt_tokens * fade + tick.prompt_tokens,
        started=sums.started * fade + max(0.0, tick.arrived - tick.waiting_grown),
        output_tokens=sums.output_tokens * fade + tick.tokens - tick.prompt_tokens,
        ended=max(0.0, sums.ended * fade + tick.finished + 0.5 * tick.running_grown),
        kv_token_seconds=sums.kv_token_seconds * fade + tick.kv_tokens * tick.seconds,
        running_seconds=sums.running_seconds * fade + tick.running * tick.seconds,
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


def _fresh(counted: _Counted, replica: ReplicaFacts, newest_ready_at: float, behind: bool) -> Latencies:
    """The part of the latencies that only requests made which came after the newest replica was ready.

    All that waited when the interval began had to come after it, and not `behind` a backlog from before; for whole
    answers, all that ran too, but an answer of many minutes does not blind us for longer than the window.
    """
    latencies, earlier, began = counted.latencies, counted.earlier, counted.began
    if replica.ready_at == newest_ready_at:
        return latencies
    oldest_waiting = (earlier.oldest_waiting_s or 0.0) if earlier else 0.0
    oldest = max(oldest_waiting, (earlier.oldest_unfinished_s or 0.0) if earlier else 0.0)
    since = newest_ready_at + _CLOCK_STEP_S
    whole = began - oldest >= since or began >= since + LATENCY_WINDOW_S
    unburdened = began - oldest_waiting >= since and not behind
    if whole and unburdened:
        return latencies
    return Latencies(
        ttft=latencies.ttft if unburdened else EMPTY,
        tpot=latencies.tpot if whole else EMPTY,
        e2e=latencies.e2e if whole and not behind else EMPTY,
    )


def _occupied(load: LoadReport) -> float:
    cache = load.kv_blocks.used / load.kv_blocks.total if load.kv_blocks.total else 0.0
    return min(1.0, max(cache, load.running / load.slots if load.slots else 0.0))


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
