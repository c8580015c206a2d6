"""Short ways to say what pods report, for tests that decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegate_operator.observed import DeploymentFacts, GatewayFacts, LoadReport, Phase, ReplicaFacts, ServiceObserved
from tidegate_operator.observed_load import Counters

NOW = 1_700_000_000.0


def report(**fields: Any) -> LoadReport:
    """An idle pod's report, but for the fields given."""
    idle: dict[str, Any] = {
        "version": 1,
        "boot": "boot-1",
        "state": "ready",
        "uptime_s": 600.0,
        "slots": 4,
        "running": 0,
        "waiting": 0,
        "counters": Counters(),
    }
    return LoadReport(**(idle | fields))


def ready(uid: str, load: LoadReport | None = None, **fields: Any) -> ReplicaFacts:
    """A pod that has been ready for ten minutes."""
    base = ReplicaFacts(
        uid=uid,
        name=f"pod-{uid}",
        phase=Phase.READY,
        created_at=NOW - 620,
        scheduled_at=NOW - 620,
        ready_at=NOW - 600,
        load=load,
        load_age_s=None if load is None else 0.2,
    )
    return replace(base, **fields)


def pending(uid: str, **fields: Any) -> ReplicaFacts:
    """A pod created five seconds ago."""
    base = ReplicaFacts(uid=uid, name=f"pod-{uid}", phase=Phase.STARTING, created_at=NOW - 5, scheduled_at=NOW - 5)
    return replace(base, **fields)


def seen(*replicas: ReplicaFacts, wanted: int | None = None, held: int | None = None) -> ServiceObserved:
    """A service with these pods; `wanted` is the Deployment's number, theirs if not given."""
    return ServiceObserved(
        deployment=DeploymentFacts(
            generation=1, observed_generation=1, replicas=len(replicas) if wanted is None else wanted
        ),
        replicas=replicas,
        gateway=None if held is None else GatewayFacts(held=held, oldest_held_s=1.0),
    )
