"""The conditions: positive polarity, and kstatus's Reconciling and Stalled only while they are true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate_operator.decide.budget import BUDGET
from tidegate_operator.decide.latency import Opinion
from tidegate_operator.decide.scaling import Decision
from tidegate_operator.decide.scaling_data import DataState
from tidegate_operator.decide.scaling_policy import Mode, ScalingPolicy
from tidegate_operator.decide.scaling_terms import say
from tidegate_operator.decide.status_diagnosis import Cause, answers, causes
from tidegate_operator.observed import Phase, ServiceObserved

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A condition before it has a time."""

    type: str
    status: Truth
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the conditions are told from."""

    policy: ScalingPolicy
    observed: ServiceObserved
    decision: Decision
    trouble: Cause | None
    """What kept the operator from making the cluster match, if anything."""
    template_hash: str | None
    """Of the template that should run; None: not known, so not compared."""
    stretched_s: float | None = None
    """Seconds between two reads of a pod, where they are further apart than was configured."""


def conditions(f: Findings) -> tuple[Said, ...]:
    """All that apply, in the order people read them."""
    found = tuple(causes(f.observed))
    if f.trouble is not None:
        found = (f.trouble, *found)
    ready = _ready(f, found)
    stalled = next((c for c in found if c.needs_a_person), None) if ready.status != "True" or f.trouble else None
    said = [ready, _model(f, found), _metrics(f)]
    said += [s for s in (_scaling(f), _slo(f)) if s is not None]
    if stalled is not None:
        said.append(Said(type="Stalled", status="True", reason=stalled.reason, message=stalled.message))
    elif rolling_out(f):
        message = "replicas of the new spec are being started, and those of the former one ended"
        said.append(Said(type="Reconciling", status="True", reason="RollingOut", message=message))
    return tuple(said)


def rolling_out(f: Findings) -> bool:
    """A change of spec is on its way to the pods; that replicas come and go is none."""
    deployment = f.observed.deployment
    if deployment is None:
        return True
    if f.template_hash is not None and deployment.template_hash != f.template_hash:
        return True
    if any(not r.current and r.phase is not Phase.DRAINING for r in f.observed.replicas):
        return True
    done = deployment.progressing is not None and deployment.progressing.reason == "NewReplicaSetAvailable"
    return not done and f.decision.replicas > 0


def _ready(f: Findings, found: tuple[Cause, ...]) -> Said:
    observed, wanted = f.observed, f.decision.replicas
    ready = sum(1 for r in observed.replicas if r.phase is Phase.READY)
    if any(answers(r, observed) for r in observed.replicas) and not _other_template(f):
        hurt = f"; {found[0].reason}: {found[0].message}" if found else ""
        return Said(type="Ready", status="True", reason="Serving", message=f"{ready} of {wanted} replicas ready{hurt}")
    if found:
        return Said(type="Ready", status="False", reason=found[0].reason, message=found[0].message)
    if wanted == 0 and not _other_template(f):
        return Said(type="Ready", status="True", reason="ScaledToZero", message="no replica runs, on purpose")
    if observed.deployment is None:
        return Said(type="Ready", status="False", reason="Creating", message="the Deployment is being created")
    if ready and (_other_template(f) or not any(r.current and r.phase is Phase.READY for r in observed.replicas)):
        message = "no replica of the new spec answers yet; those of the former one still do"
        return Said(type="Ready", status="False", reason="RollingOut", message=message)
    if ready:
        errors = [f"pod {r.name}: {r.scrape_error}" for r in observed.replicas if r.current and r.scrape_error]
        message = errors[0] if errors else "replicas are ready, and none has answered through the service yet"
        return Said(type="Ready", status="False", reason="NotAnswering", message=message)
    return Said(
        type="Ready", status="False", reason="Starting", message=f"0 of {wanted} replicas ready; loading the model"
    )


def _other_template(f: Findings) -> bool:
    deployment = f.observed.deployment
    return deployment is None or (f.template_hash is not None and deployment.template_hash != f.template_hash)


def _model(f: Findings, found: tuple[Cause, ...]) -> Said:
    if any(r.current and r.load is not None and r.load.state == "ready" for r in f.observed.replicas):
        return Said(type="ModelAvailable", status="True", reason="Loaded", message="a replica has loaded the model")
    model = next((c for c in found if c.model), None)
    if model is not None:
        return Said(type="ModelAvailable", status="False", reason=model.reason, message=model.message)
    if f.decision.replicas == 0:
        message = "no replica runs that would load the model"
        return Said(type="ModelAvailable", status="Unknown", reason="ScaledToZero", message=message)
    message = "no replica has loaded the model yet"
    return Said(type="ModelAvailable", status="Unknown", reason="Loading", message=message)


def _metrics(f: Findings) -> Said:
    state, supply = f.decision.data_state, f.decision.supply
    if state is DataState.NO_REPLICAS:
        message = "no replica is ready, so there is nothing to measure"
        return Said(type="MetricsAvailable", status="Unknown", reason=state.value, message=message)
    heard = len(supply.recent)
    if state in (DataState.PARTIAL, DataState.STALE, DataState.MISSING):
        errors = sorted(f"{r.name}: {r.scrape_error}" for r in supply.ready if r.scrape_error)
        first = f" ({errors[0]})" if errors else ""
        message = f"{heard} of {len(supply.ready)} ready replicas answer{first}"
        return Said(type="MetricsAvailable", status="False", reason=state.value, message=message)
    message = f"{heard} of {len(supply.ready)} ready replicas answer"
    if f.stretched_s is not None:
        message += f"; they are asked every {f.stretched_s:.2g} s, as the operator has more to read than it is quick"
    return Said(type="MetricsAvailable", status="True", reason="Answering", message=message)


def _scaling(f: Findings) -> Said | None:
    """Left out where the number is fixed: nothing is wrong then, and False would read as if."""
    decision = f.decision
    if f.policy.mode is Mode.FIXED and not f.policy.paused:
        return None
    off = f.policy.paused or decision.data_state in (DataState.STALE, DataState.MISSING)
    status: Truth = "False" if off else "True"
    message = decision.message
    if f.policy.mode is Mode.EXTERNAL and not off:
        status = "Unknown"
        if decision.recommended != decision.replicas:
            message += f"; Tidegate would choose {decision.recommended}"
    return Said(type="ScalingActive", status=status, reason=decision.reason, message=message)


def _slo(f: Findings) -> Said | None:
    """Left out where no target is set."""
    verdicts = f.decision.verdicts
    if not verdicts:
        return None
    missed = [v for v in verdicts if v.opinion is Opinion.MISSED]
    if missed:
        worst = max(missed, key=lambda v: v.surely_over)
        reason = "SLOUnattainable" if f.decision.unattainable else "SLOMissed"
        more = ", and more replicas would not help" if f.decision.unattainable else _unaffordable(f)
        return Said(type="SLOMet", status="False", reason=reason, message=say(worst) + more)
    met = [v for v in verdicts if v.opinion is Opinion.MET]
    if met:
        return Said(type="SLOMet", status="True", reason="TargetsMet", message="; ".join(say(v) for v in met))
    message = "too few requests to judge the latency targets"
    return Said(type="SLOMet", status="Unknown", reason="TooFewRequests", message=message)


def _unaffordable(f: Findings) -> str:
    """The budget's part in a missed target."""
    price = f.policy.price
    if BUDGET not in f.decision.limited_by or price is None or price.max_per_hour is None:
        return ""
    return f"; the budget of {price.max_per_hour:g} an hour pays for no more than {f.decision.recommended} replicas"
