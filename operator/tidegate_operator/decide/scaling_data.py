"""What can be believed of the data, and which replicas count as supply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.observed import LoadReport, Phase, ReplicaFacts, ServiceObserved

STUCK_AFTER_COLD_STARTS = 3
SHORTEST_STUCK_S = 60.0


class DataState(StrEnum):
    """No traffic, no samples and stale are different things; the names go to the status."""

    FLOWING = "Flowing"
    IDLE = "Idle"
    """Pods answer; nothing arrives, waits or runs."""
    STALLED = "Stalled"
    """Work is there, and some pod takes no step."""
    PARTIAL = "Partial"
    """Some ready pods are silent."""
    STALE = "Stale"
    """Every ready pod has fallen silent."""
    MISSING = "Missing"
    """Ready pods are there, and none was ever heard."""
    NO_REPLICAS = "NoReplicas"
    """No pod is ready, so there is nothing to hear."""

    @property
    def complete(self) -> bool:
        """Whether every ready pod was heard, so that a low number means low load."""
        return self in (DataState.FLOWING, DataState.IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The replicas, by what may be expected of them. A draining pod is neither load nor supply."""

    ready: tuple[ReplicaFacts, ...]
    recent: tuple[LoadReport, ...]
    """Recent reports of ready pods."""
    heard: tuple[LoadReport, ...]
    """Recent reports of ready pods that take steps."""
    stalled: int
    pending: int
    """Will be ready within a few cold starts, as far as anyone knows; those not created yet too."""
    broken: tuple[ReplicaFacts, ...]
    """Fail to start, or have tried for too long: reported, not replaced by more."""
    uncreated: int
    """Refused by the API server (quota, pod security)."""
    newest_ready_at: float

    @property
    def expected(self) -> int:
        """Ready replicas and those on their way."""
        return len(self.ready) - self.stalled + self.pending


def supply_of(observed: ServiceObserved, policy: ScalingPolicy, cold_start_s: float, now: float) -> Supply:
    """Sort the replicas; time without a node is no cold start, but too long without one is too long."""
    ready = tuple(r for r in observed.replicas if r.phase is Phase.READY)
    starting = [r for r in observed.replicas if r.phase in (Phase.PENDING, Phase.STARTING)]
    patience = max(SHORTEST_STUCK_S, STUCK_AFTER_COLD_STARTS * cold_start_s)
    stuck = [r for r in starting if now - (r.created_at if r.scheduled_at is None else r.scheduled_at) > patience]
    failed = [r for r in observed.replicas if r.phase is Phase.FAILED]
    deployment = observed.deployment
    absent = max(0, deployment.replicas - len(ready) - len(starting) - len(failed)) if deployment else 0
    refused = bool(deployment and deployment.replica_failure and deployment.replica_failure.status == "True")
    recent = [r.load for r in ready if r.load and is_recent(r, policy)]
    stalled = [load for load in recent if is_stalled(load, policy)]
    return Supply(
        ready=ready,
        recent=tuple(recent),
        heard=tuple(load for load in recent if not is_stalled(load, policy)),
        stalled=len(stalled),
        pending=len(starting) - len(stuck) + (0 if refused else absent),
        broken=(*failed, *stuck),
        uncreated=absent if refused else 0,
        newest_ready_at=max((r.ready_at for r in ready if r.ready_at is not None), default=0.0),
    )


def is_recent(replica: ReplicaFacts, policy: ScalingPolicy) -> bool:
    """Whether the last report still says how the pod is."""
    return replica.load is not None and replica.load_age_s is not None and replica.load_age_s <= policy.stale_after_s


def is_stalled(load: LoadReport, policy: ScalingPolicy) -> bool:
    """Work is there and no step has ended for long; a pod that completes nothing is not idle."""
    if load.running + load.waiting == 0:
        return False
    if load.last_step_age_s is None:
        return (load.oldest_waiting_s or 0.0) > policy.stalled_after_s
    oldest = max(load.oldest_waiting_s or 0.0, load.oldest_unfinished_s or 0.0)
    return min(load.last_step_age_s, oldest) > policy.stalled_after_s


def state_of(supply: Supply, held: int, arrived: float) -> DataState:
    """Name the state of the data; `arrived` counts requests since the last look."""
    recent = len(supply.recent)
    if not supply.ready:
        return DataState.NO_REPLICAS
    if not recent:
        return DataState.STALE if any(r.load for r in supply.ready) else DataState.MISSING
    if supply.stalled:
        return DataState.STALLED
    if recent < len(supply.ready):
        return DataState.PARTIAL
    busy = held or arrived or any(load.running or load.waiting for load in supply.heard)
    return DataState.FLOWING if busy else DataState.IDLE
