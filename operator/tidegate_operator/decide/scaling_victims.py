"""Which replica should go first, as a hint for the ReplicaSet."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_operator.observed import Phase, ReplicaFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCost:
    """The value of annotation controller.kubernetes.io/pod-deletion-cost; the lowest goes first."""

    uid: str
    name: str
    cost: int


def deletion_costs(replicas: tuple[ReplicaFacts, ...]) -> tuple[DeletionCost, ...]:
    """Rank ready pods from idlest and coldest (0) to busiest and warmest; nothing may depend on its being taken."""
    ready = sorted((r for r in replicas if r.phase is Phase.READY), key=_worth)
    return tuple(DeletionCost(uid=r.uid, name=r.name, cost=rank) for rank, r in enumerate(ready))


def _worth(replica: ReplicaFacts) -> tuple[bool, int, int, float, str]:
    load = replica.load
    if load is None:
        return (replica.current, 0, 0, 0.0, replica.uid)
    return (replica.current, load.running + load.waiting, load.kv_blocks.used, load.uptime_s, replica.uid)
