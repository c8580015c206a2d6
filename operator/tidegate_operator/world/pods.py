"""What a pod's own status says of it: a pure reading of the API's JSON into facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate_operator.observed import ContainerFailure, Phase, ReplicaFacts, ServiceKey

SERVICE_LABEL = "tidegate.dev/service"
TEMPLATE_HASH = "tidegate.dev/template-hash"
"""Annotation of the Deployment, and of its pods: which rendering they come from."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CONTAINER = "engine"
ON_THE_WAY = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Waiting reasons of a container that nothing is wrong with."""
MESSAGE_LIMIT = 1024

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Termination:
    """A container that ended with a code other than 0, or a pod that was evicted, and when."""

    at: float
    failure: ContainerFailure


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The few fields of a pod that are kept. `facts` is None for a pod that has ended and is being replaced."""

    key: ServiceKey
    uid: str
    version: int
    ip: str | None
    template_hash: str | None
    facts: ReplicaFacts | None
    terminations: tuple[Termination, ...]


def read_pod(pod: Json) -> PodRecord | None:
    """The record of an engine pod; None for a pod that carries our label and was not made by our Deployment."""
    meta, status = pod["metadata"], pod.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    service = labels.get(SERVICE_LABEL)
    if not service or not _made_by(meta, f"{service}-{labels.get('pod-template-hash')}"):
        return None
    container: Json = next((c for c in status.get("containerStatuses") or () if c.get("name") == CONTAINER), {})
    terminations = tuple(_terminations(status, container))
    ended = status.get("phase") in ("Succeeded", "Failed")
    return PodRecord(
        key=ServiceKey(meta["namespace"], service),
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        ip=status.get("podIP"),
        template_hash=annotations.get(TEMPLATE_HASH),
        facts=None if ended else _facts(meta, annotations, status, container),
        terminations=terminations,
    )


def instant(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp() if text else None


def one_line(text: str | None) -> str:
    """The last line that says something, bounded: a log's tail ends with the reason."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1][:MESSAGE_LIMIT] if lines else ""


def _made_by(meta: Json, replica_set: str) -> bool:
    return any(
        owner.get("controller") and owner.get("kind") == "ReplicaSet" and owner.get("name") == replica_set
        for owner in meta.get("ownerReferences") or ()
    )


def _facts(meta: Json, annotations: Json, status: Json, container: Json) -> ReplicaFacts:
    scheduled, ready = _condition(status, "PodScheduled"), _condition(status, "Ready")
    failure = _failure(container)
    state = container.get("state") or {}
    if meta.get("deletionTimestamp"):
        phase = Phase.DRAINING
    elif failure is not None and "running" not in state:
        phase = Phase.FAILED
    elif ready.get("status") == "True":
        phase = Phase.READY
    elif "running" in state:
        phase = Phase.STARTING
    else:
        phase = Phase.PENDING
    return ReplicaFacts(
        uid=meta["uid"],
        name=meta["name"],
        phase=phase,
        created_at=instant(meta["creationTimestamp"]) or 0.0,
        scheduled_at=instant(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        ready_at=instant(ready.get("lastTransitionTime")) if phase is Phase.READY else None,
        restarts=container.get("restartCount", 0),
        unschedulable=_unschedulable(scheduled),
        failure=None if phase is Phase.READY else failure,
        deletion_cost=_integer(annotations.get(DELETION_COST)),
    )


def _unschedulable(scheduled: Json) -> str | None:
    if scheduled.get("status") != "False":
        return None
    return one_line(scheduled.get("message")) or scheduled.get("reason") or "not scheduled"


def _failure(container: Json) -> ContainerFailure | None:
    """Why the container does not run, or ran and ended badly before the start that is under way."""
    state, last = container.get("state") or {}, (container.get("lastState") or {}).get("terminated")
    ended = state.get("terminated") or last
    if ended is not None and not ended.get("exitCode"):
        ended = None
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason") or ""
    if waiting and reason not in ON_THE_WAY:
        said = one_line(ended.get("message")) if ended else ""
        return ContainerFailure(
            reason=reason,
            message=said or one_line(waiting.get("message")),
            exit_code=ended["exitCode"] if ended else None,
        )
    return _ended(ended) if ended else None


def _ended(terminated: Json) -> ContainerFailure:
    return ContainerFailure(
        reason=terminated.get("reason") or "Error",
        message=one_line(terminated.get("message")),
        exit_code=terminated["exitCode"],
    )


def _terminations(status: Json, container: Json) -> Iterable[Termination]:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode"):
            yield Termination(instant(terminated.get("finishedAt")) or 0.0, _ended(terminated))
    if status.get("phase") == "Failed" and status.get("reason"):
        at = instant(_condition(status, "Ready").get("lastTransitionTime")) or instant(status.get("startTime")) or 0.0
        yield Termination(at, ContainerFailure(reason=status["reason"], message=one_line(status.get("message"))))


def _condition(status: Json, kind: str) -> Json:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None
