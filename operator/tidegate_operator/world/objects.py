"""The other kinds the operator watches, read into the few fields that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate_operator.observed import ConditionFacts, DeploymentFacts, ServiceKey
from tidegate_operator.world.pods import SERVICE_LABEL, TEMPLATE_HASH

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """An InferenceService as the API server has it; `spec` and `status` are not read here."""

    key: ServiceKey
    uid: str
    version: int
    generation: int
    deleting: bool
    spec: Json
    status: Json
    annotations: Json


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """A Deployment of ours, and the generation by which somebody else's edit is noticed."""

    key: ServiceKey
    uid: str
    version: int
    deleting: bool
    annotations: Json
    facts: DeploymentFacts


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """Pods (by UID) that one EndpointSlice lists as ready."""

    key: ServiceKey
    uid: str
    version: int
    ready: frozenset[str]


def read_service(body: Json) -> ServiceRecord:
    """The record of an InferenceService."""
    meta = body["metadata"]
    return ServiceRecord(
        key=ServiceKey(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        generation=meta.get("generation", 1),
        deleting="deletionTimestamp" in meta,
        spec=body.get("spec") or {},
        status=body.get("status") or {},
        annotations=meta.get("annotations") or {},
    )


def read_deployment(body: Json) -> DeploymentRecord | None:
    """The record of a Deployment that carries its service's name; None for another one with our label."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    if (meta.get("labels") or {}).get(SERVICE_LABEL) != meta["name"]:
        return None
    return DeploymentRecord(
        key=ServiceKey(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        deleting="deletionTimestamp" in meta,
        annotations=meta.get("annotations") or {},
        facts=DeploymentFacts(
            generation=meta.get("generation", 1),
            observed_generation=status.get("observedGeneration", 0),
            replicas=spec.get("replicas", 1),
            current=status.get("replicas", 0),
            ready=status.get("readyReplicas", 0),
            updated=status.get("updatedReplicas", 0),
            available=status.get("availableReplicas", 0),
            unavailable=status.get("unavailableReplicas", 0),
            progressing=_condition(status, "Progressing"),
            replica_failure=_condition(status, "ReplicaFailure"),
            template_hash=(meta.get("annotations") or {}).get(TEMPLATE_HASH),
        ),
    )


def read_slice(body: Json) -> SliceRecord | None:
    """The record of an EndpointSlice of our Service; None where it has lost the label."""
    meta = body["metadata"]
    service = (meta.get("labels") or {}).get(SERVICE_LABEL)
    if not service:
        return None
    return SliceRecord(
        key=ServiceKey(meta["namespace"], service),
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        ready=frozenset(
            endpoint["targetRef"]["uid"]
            for endpoint in body.get("endpoints") or ()
            # An absent `ready` means ready (API reference of EndpointConditions).
            if (endpoint.get("conditions") or {}).get("ready", True) and "uid" in (endpoint.get("targetRef") or {})
        ),
    )


def _condition(status: Json, kind: str) -> ConditionFacts | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            return ConditionFacts(
                status=condition.get("status", "Unknown"),
                reason=condition.get("reason", ""),
                message=condition.get("message", ""),
            )
    return None
