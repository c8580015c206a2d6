"""What is told of a service, and whether it is worth a write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate_operator import resource
from tidegate_operator.decide.latency import over_window
from tidegate_operator.decide.pod_template import selector
from tidegate_operator.decide.scaling_memory import Tick
from tidegate_operator.decide.scaling_spec import learned_to
from tidegate_operator.decide.status_conditions import Findings, Said, conditions
from tidegate_operator.decide.status_diagnosis import Cause
from tidegate_operator.observed import Phase, ServiceKey, Sketch

FIGURES_EVERY_S = 30.0
CHANGES_KEPT = 10
_LONGEST_MESSAGE = 1024
_LONGEST_OLD_MESSAGE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Which object is reported on."""

    key: ServiceKey
    generation: int
    previous: resource.InferenceServiceStatus


def report(subject: Subject, findings: Findings, now: float) -> resource.InferenceServiceStatus:
    """The whole status, from what was seen and decided; a condition keeps its time while its status stays."""
    decision, observed = findings.decision, findings.observed
    namespace, name = subject.key
    ready = sum(1 for r in observed.replicas if r.phase is Phase.READY)
    ticks = decision.memory.window.ticks
    return resource.InferenceServiceStatus(
        observed_generation=subject.generation,
        replicas=observed.deployment.current if observed.deployment else 0,
        ready_replicas=ready,
        ready=f"{ready}/{decision.replicas}",
        selector=",".join(f"{label}={value}" for label, value in selector(name).items()),
        url=f"http://{name}.{namespace}.svc/v1",
        conditions=_dated(conditions(findings), subject.previous.conditions, subject.generation, now),
        scaling=_with_history(
            _scaling(findings),
            subject.previous.scaling,
            now,
        ),
        latency=_latency(ticks),
        cost=_cost(findings, ticks),
    )


def report_refused(
    generation: int, previous: resource.InferenceServiceStatus, cause: Cause, now: float
) -> resource.InferenceServiceStatus:
    """The status of an object that cannot be acted on at all; what runs is left as it is, and so are its figures."""
    said = [Said(type="Ready", status="False", reason=cause.reason, message=cause.message)]
    if cause.needs_a_person:
        said.append(Said(type="Stalled", status="True", reason=cause.reason, message=cause.message))
    kept = tuple(c for c in previous.conditions if c.type not in ("Ready", "Stalled", "Reconciling"))
    dated = _dated(said, previous.conditions, generation, now)
    return previous.model_copy(update={"observed_generation": generation, "conditions": (*dated, *kept)})


def is_write_due(
    written: resource.InferenceServiceStatus,
    new: resource.InferenceServiceStatus,
    written_at: float | None,
    now: float,
    figures_every: float = FIGURES_EVERY_S,
) -> bool:
    """A decision or a condition changed, or figures changed and the last write is `figures_every` seconds old.

    `written_at` is None where this process has not written yet.
    """
    if _weighty(written) != _weighty(new):
        return True
    return written != new and (written_at is None or now - written_at >= figures_every)


def _weighty(status: resource.InferenceServiceStatus) -> tuple[object, ...]:
    """What must be seen at once. Messages that carry figures, and reasons that name a passing look, are not."""
    told = tuple(
        (c.type, c.status, c.observed_generation)
        if c.type in ("ScalingActive", "MetricsAvailable", "SLOMet") and c.status != "False"
        else (c.type, c.status, c.observed_generation, c.reason)
        if c.type in ("ScalingActive", "MetricsAvailable", "SLOMet")
        else (c.type, c.status, c.observed_generation, c.reason, c.message)
        for c in status.conditions
    )
    scaling = status.scaling
    decided = (_decided(scaling), scaling.last_change_time) if scaling else None
    counts = (status.replicas, status.ready_replicas, status.ready, status.selector, status.url)
    return (status.observed_generation, counts, told, decided)


def _dated(
    said: Iterable[Said], before: tuple[resource.Condition, ...], generation: int, now: float
) -> tuple[resource.Condition, ...]:
    known = {c.type: c for c in before}
    return tuple(
        resource.Condition(
            type=s.type,
            status=s.status,
            observed_generation=generation,
            last_transition_time=(
                known[s.type].last_transition_time
                if s.type in known and known[s.type].status == s.status
                else _rfc3339(now)
            ),
            reason=s.reason,
            message=s.message[:_LONGEST_MESSAGE],
        )
        for s in said
    )


def _scaling(findings: Findings) -> resource.ScalingStatus:
    decision, deployment = findings.decision, findings.observed.deployment
    demand, learned = decision.demand, decision.memory.learned
    inputs = {
        "queueDepth": {
            "waiting": float(demand.waiting_everywhere),
            "held": float(demand.held),
            "running": float(demand.running),
            "slots": float(demand.slots),
            "arrivalsPerSecond": _rounded(demand.arrivals_per_s),
            "utilisation": _rounded(demand.utilisation),
        }
        | ({} if demand.load is None else {"load": _rounded(demand.load)}),
        "p99": {
            f"{v.target.metric.value}{part}": value
            for v in decision.verdicts
            for part, value in (("Samples", float(v.samples)), ("Over", float(v.over)))
        },
    }
    return resource.ScalingStatus(
        mode=findings.policy.mode.value,
        desired=decision.replicas,
        current=deployment.replicas if deployment else 0,
        recommended=None if decision.recommended == decision.replicas else decision.recommended,
        reason=decision.reason,
        message=decision.message[:_LONGEST_MESSAGE],
        term=decision.term,
        terms=tuple(
            resource.TermStatus(
                name=term.name,
                replicas=term.replicas,
                message=term.message[:_LONGEST_MESSAGE],
                inputs=_figures(term.inputs) or inputs.get(term.name, {}),
            )
            for term in decision.terms
        ),
        limited_by=decision.limited_by,
        data_state=decision.data_state.value,
        queue_depth=demand.waiting_everywhere + demand.held,
        running=demand.running,
        cold_start=learned.cold_start_s,
        last_change_time=None if learned.last_change_at is None else _rfc3339(learned.last_change_at),
        learned=learned_to(learned),
    )


def _decided(scaling: resource.ScalingStatus) -> tuple[object, ...]:
    """What makes a decision another one. In mode external the recommended number is not steadied, so it is a figure."""
    return (scaling.mode, scaling.desired, None if scaling.mode == "external" else scaling.recommended)


def _with_history(
    new: resource.ScalingStatus, before: resource.ScalingStatus | None, now: float
) -> resource.ScalingStatus:
    """With the newest changes; one is added where the number, or the recommended one, is another than before."""
    history = before.history if before else ()
    if before is None or _decided(before) != _decided(new):
        change = resource.Change(
            time=_rfc3339(now),
            desired=new.desired,
            before=new.current if before is None else before.desired,
            recommended=new.recommended,
            reason=new.reason,
            message=new.message[:_LONGEST_OLD_MESSAGE],
            term=new.term,
            terms=tuple(t.model_copy(update={"message": t.message[:_LONGEST_OLD_MESSAGE]}) for t in new.terms),
            limited_by=new.limited_by,
            data_state=new.data_state,
        )
        history = (change, *history)
    return new.model_copy(update={"history": history[:CHANGES_KEPT]})


def _figures(inputs: Mapping[str, float]) -> dict[str, float]:
    """JSON has no NaN and no infinity; what is not known is left out."""
    return {name: _rounded(value) for name, value in inputs.items() if math.isfinite(value)}


def _latency(ticks: tuple[Tick, ...]) -> resource.LatencyStatus | None:
    seen = over_window(ticks)
    ttft, tpot, e2e = _percentiles(seen.ttft), _percentiles(seen.tpot), _percentiles(seen.e2e)
    if ttft is None and tpot is None and e2e is None:
        return None
    return resource.LatencyStatus(ttft=ttft, tpot=tpot, e2e=e2e)


def _percentiles(sketch: Sketch) -> resource.Percentiles | None:
    if not sketch.count:
        return None
    return resource.Percentiles(p50=sketch.quantile(0.5), p95=sketch.quantile(0.95), p99=sketch.quantile(0.99))


def _cost(findings: Findings, ticks: tuple[Tick, ...]) -> resource.CostStatus | None:
    """What the replicas cost that have a node, ready or not; and over the window, for the tokens they computed."""
    price = findings.policy.price
    if price is None:
        return None
    replicas = findings.observed.replicas
    paid = sum(1 for r in replicas if r.scheduled_at is not None or r.phase is not Phase.PENDING)
    not_ready = paid - sum(1 for r in replicas if r.phase is Phase.READY)
    seconds, tokens = sum(t.seconds for t in ticks), sum(t.tokens for t in ticks)
    replica_seconds = sum((t.ready + not_ready) * t.seconds for t in ticks)
    return resource.CostStatus(
        per_hour=_rounded(price.per_replica_hour * paid),
        per_million_tokens=(
            _rounded(1e6 * price.per_replica_hour * replica_seconds / 3600 / tokens) if seconds and tokens else None
        ),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
