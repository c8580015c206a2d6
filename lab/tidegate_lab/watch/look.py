"""One look at a service: a row of the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_operator.observed_load import LoadReport

from tidegate_lab.cluster import Cluster, Name
from tidegate_lab.watch.recent import Recent

WINDOW_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a service's status and pods say at one time. None is "not known", never zero."""

    at_s: float
    desired: int | None
    ready: int | None
    ready_condition: str
    waiting: int | None
    running: int | None
    ttft_p99_s: float | None
    reason: str
    news: tuple[str, ...] = ()
    """What the operator said since the look before: its events, each with its reason."""


class Watcher:
    """Looks at one service again and again."""

    def __init__(self, cluster: Cluster, name: Name) -> None:
        self._cluster, self._name = cluster, name
        self._ttft = Recent(WINDOW_S)
        self._began = time.monotonic()
        self._heard = {(e.uid, e.count) for e in cluster.events(name)}

    def look(self) -> Look:
        """The service now. Raises ClusterError where it cannot be seen."""
        now = time.monotonic()
        service = self._cluster.service(self._name)
        loads = self._cluster.loads(self._name)
        window = self._ttft.add(now, {load.boot: load.sketches.ttft for load in loads if load})
        return look(now - self._began, service, loads, window.quantile(0.99), self._news())

    def _news(self) -> tuple[str, ...]:
        events = [e for e in self._cluster.events(self._name) if (e.uid, e.count) not in self._heard]
        self._heard |= {(e.uid, e.count) for e in events}
        return tuple(f"{e.reason}: {e.message}" for e in events)


def look(
    at_s: float,
    service: dict[str, Any],
    loads: Sequence[LoadReport | None],
    ttft_p99_s: float | None,
    news: tuple[str, ...] = (),
) -> Look:
    """Put a row together. Queue figures of some pods only would be too small, so they count as not known."""
    status = service.get("status") or {}
    scaling = status.get("scaling") or {}
    known = [load for load in loads if load is not None]
    whole = len(known) == len(loads)
    ready = condition(service, "Ready")
    return Look(
        at_s=at_s,
        desired=scaling.get("desired", status.get("replicas")),
        ready=status.get("readyReplicas"),
        ready_condition=f"{ready.status} {ready.reason}",
        waiting=sum(load.waiting for load in known) if whole else None,
        running=sum(load.running for load in known) if whole else None,
        ttft_p99_s=ttft_p99_s,
        reason=scaling.get("reason", ""),
        news=news,
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a service; Unknown while the operator has not written it."""

    status: str
    reason: str
    message: str


def condition(service: dict[str, Any], kind: str) -> Condition:
    """The condition of that type, where it is about the generation that the user sees."""
    status = service.get("status") or {}
    for entry in status.get("conditions") or ():
        if entry["type"] == kind:
            if entry.get("observedGeneration", status.get("observedGeneration")) != service["metadata"]["generation"]:
                return Condition("Unknown", "Outdated", "the operator has not looked at the newest generation yet")
            return Condition(entry["status"], entry.get("reason", ""), entry.get("message", ""))
    return Condition("Unknown", "NotReported", "the operator has not looked at it yet")
