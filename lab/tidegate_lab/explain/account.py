"""An InferenceService's scaling told in full: a pure function of the object and the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from tidegate_operator.decide.bounds import bounded
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.decide.scaling_spec import learned_from, policy_of
from tidegate_operator.decide.schedule import is_active, next_start
from tidegate_operator.resource import (
    InferenceServiceSpec,
    InferenceServiceStatus,
    Percentiles,
    ScalingStatus,
    TermStatus,
    UnreadableSpec,
    format_duration,
    read_spec,
    read_status,
)

from tidegate_lab.explain.levers import levers

_TOLD = ("Ready", "ScalingActive", "MetricsAvailable", "SLOMet")
_SCHEDULES_LOOK_AHEAD_S = 400 * 86_400.0

Json = Mapping[str, Any]


def account(service: Json, now: float) -> Iterator[str]:
    """The lines to print, for a service as the API server has it; `now` is seconds since the epoch."""
    meta = service["metadata"]
    name = f"{meta['namespace']}/{meta['name']}"
    try:
        spec = read_spec(service["spec"])
        status = read_status(service.get("status") or {})
    except UnreadableSpec as error:
        yield f"{name}: {error}"
        return
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        yield f"{name}: status.{where} cannot be read; use the tidegate of the operator's version"
        return
    scaling = status.scaling
    if scaling is None:
        yield f"{name}: the operator has not looked at it yet"
        return
    policy = policy_of(spec)
    policy_now = bounded(policy, learned_from(status).cold_start_s, now)
    yield from _summary(name, meta["generation"], spec, policy_now, status, scaling)
    yield ""
    yield "What was seen"
    yield from _seen(status, scaling)
    yield ""
    yield "What each term asks for"
    yield from _terms(scaling.terms, scaling.term)
    yield ""
    yield "What would change it"
    for lever in levers(spec, policy_now, status, scaling):
        yield f"  {lever}"
    if policy.schedules:
        yield ""
        yield "Schedules"
        yield from _schedules(policy, now)
    yield ""
    yield "Changes, newest first"
    yield from _history(scaling, now)


def _summary(
    name: str,
    generation: int,
    spec: InferenceServiceSpec,
    policy: ScalingPolicy,
    status: InferenceServiceStatus,
    scaling: ScalingStatus,
) -> Iterator[str]:
    bounds = ""
    if spec.scaling is not None and policy.mode != "external":
        by = {policy.minimum_by, policy.maximum_by} - {"minReplicas", "maxReplicas"}
        bounds = f", {policy.minimum} to {policy.maximum} now" + (f" by {' and '.join(sorted(by))}" if by else "")
    mode = "paused" if policy.paused else f"mode {policy.mode.value}"
    yield f"{name}: {scaling.desired} replicas wanted, {status.ready_replicas or 0} ready ({mode}{bounds})"
    if status.observed_generation != generation:
        yield f"  of generation {status.observed_generation}; the operator has not looked at {generation} yet"
    if scaling.recommended is not None:
        yield f"  Tidegate would choose {scaling.recommended}"
    yield f"  {scaling.reason}: {scaling.message}"
    if scaling.term:
        yield f"  decided by: {scaling.term}"
    if scaling.limited_by:
        yield f"  limited by: {', '.join(scaling.limited_by)}"


def _seen(status: InferenceServiceStatus, scaling: ScalingStatus) -> Iterator[str]:
    yield f"  data {scaling.data_state}; {scaling.queue_depth or 0} requests wait, {scaling.running or 0} run"
    if scaling.cold_start is not None:
        learned = len(scaling.learned.cold_starts_seconds) if scaling.learned else 0
        source = f"p90 of the last {learned} cold starts" if learned else "a guess until the first cold start"
        yield f"  a replica starts in {format_duration(scaling.cold_start)} ({source})"
    if status.latency is not None:
        named = (("TTFT", status.latency.ttft), ("TPOT", status.latency.tpot), ("end to end", status.latency.e2e))
        yield "  " + "; ".join(f"{name} {_percentiles(p)}" for name, p in named if p is not None)
    if status.cost is not None and status.cost.per_hour is not None:
        tokens = status.cost.per_million_tokens
        yield f"  {status.cost.per_hour:g} an hour" + ("" if tokens is None else f", {tokens:g} per million tokens")
    for condition in status.conditions:
        if condition.type in _TOLD and condition.status != "True":
            yield f"  {condition.type}={condition.status}, {condition.reason}: {condition.message}"


def _percentiles(found: Percentiles) -> str:
    each = (("p50", found.p50), ("p95", found.p95), ("p99", found.p99))
    return ", ".join(f"{name} {format_duration(value)}" for name, value in each if value is not None)


def _terms(terms: tuple[TermStatus, ...], winner: str | None, indent: str = "  ") -> Iterator[str]:
    width = max((len(term.name) for term in terms), default=0)
    for term in terms:
        mark = ">" if term.name == winner else " "
        wanted = "-" if term.replicas is None else str(term.replicas)
        yield f"{indent}{mark} {term.name:<{width}} {wanted:>4}  {term.message}"
        if term.inputs:
            figures = ", ".join(f"{name} {value:g}" for name, value in term.inputs.items())
            yield f"{indent}  {'':<{width}} {'':>4}  {figures}"


def _schedules(policy: ScalingPolicy, now: float) -> Iterator[str]:
    for schedule in policy.schedules:
        bounds = [f"{schedule.minimum} at least"] if schedule.minimum is not None else []
        bounds += [f"{schedule.maximum} at most"] if schedule.maximum is not None else []
        when = "active now"
        if not is_active(schedule, now):
            start = next_start(schedule, now, _SCHEDULES_LOOK_AHEAD_S)
            when = "not within a year" if start is None else f"next in {_span(start - now)}"
        hours = f"for {_span(schedule.duration_s)}, {schedule.time_zone}"
        yield f"  {schedule.name}: {' and '.join(bounds)}, {hours}; {when}"


def _history(scaling: ScalingStatus, now: float) -> Iterator[str]:
    if not scaling.history:
        yield "  none yet"
    for change in scaling.history:
        ago = _span(max(0.0, now - datetime.fromisoformat(change.time).timestamp()))
        advice = "" if change.recommended is None else f" (Tidegate would have chosen {change.recommended})"
        number = f"{change.before} -> {change.desired}" if change.before != change.desired else f"{change.desired}"
        yield f"  {ago:>7} ago  {number}{advice}  {change.reason}: {change.message}"
        yield from _terms(change.terms, change.term, " " * 15)


def _span(seconds: float) -> str:
    """Two units at most: `45 s`, `3 min`, `2 h 5 min`, `3 d 4 h`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min"
