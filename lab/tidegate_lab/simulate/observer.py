"""What the operator sees: the objects as they are, and of each pod the last report that could be read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate_operator.observed import (
    DeploymentFacts,
    GatewayFacts,
    LoadReport,
    Phase,
    ReplicaFacts,
    ServiceObserved,
    UnreadableLoad,
    read_load,
)

from tidegate_lab.simulate.fleet import Fleet, struck
from tidegate_lab.simulate.pods import Pod
from tidegate_lab.simulate.reports import Reporter, Told
from tidegate_lab.simulate.scenario import EPOCH, Fault, FaultKind, Routing, Scenario
from tidegate_lab.simulate.servers import Servers

_NAN_BODY = (
    b'{"version": 1, "boot": "nan", "state": "ready", "uptime_s": NaN, "slots": NaN, "running": NaN, "waiting": NaN,'
    b' "counters": {}}'
)
_ERRORS = {
    FaultKind.HTTP_500: "/load answered HTTP 500",
    FaultKind.TIMEOUT: "/load did not answer within 1.5 s",
}
"""In the scraper's words."""


@dataclass(frozen=True, slots=True)
class _Reading:
    load: LoadReport | None = None
    at: float = 0.0
    error: str | None = None


class Observer:
    """Scrapes the fleet, with the scenario's faults on the way."""

    def __init__(self, scenario: Scenario, fleet: Fleet, servers: Servers, sketches: bool) -> None:
        self._scenario, self._fleet, self._servers = scenario, fleet, servers
        self._reporter = Reporter(scenario.engine, servers, sketches)
        self._readings: dict[int, _Reading] = {}
        self._faults = [fault for fault in scenario.faults if fault.kind in _DATA_FAULTS]
        self._stale: dict[tuple[int, str], LoadReport] = {}
        self._forgotten: dict[str, tuple[int, Told]] = {}
        """By boot: the reset that did it, and what the counters were at then."""

    def scrape(self) -> None:
        """Ask every pod whose process runs."""
        asked = [pod for pod in self._fleet.pods if pod.phase in (Phase.STARTING, Phase.READY, Phase.DRAINING)]
        hit = self._hit() if self._faults else {}
        readings = {}
        for pod in asked:
            before = self._readings.get(pod.number, _Reading())
            readings[pod.number] = self._read(pod, before, hit.get(pod.number, ()))
        self._readings = readings

    def observe(self) -> ServiceObserved:
        """All that is known now."""
        fleet, held = self._fleet, self._servers.held
        ready = fleet.ready()
        alive = sum(pod.wanted for pod in fleet.pods)
        return ServiceObserved(
            deployment=DeploymentFacts(
                generation=1,
                observed_generation=1,
                replicas=fleet.wanted,
                current=alive,
                ready=len(ready),
                updated=alive,
                available=len(ready),
                unavailable=alive - len(ready),
            ),
            replicas=tuple(self._facts(pod) for pod in fleet.pods),
            ready_endpoint_uids=frozenset(pod.uid for pod in ready),
            gateway=GatewayFacts(held=held, oldest_held_s=self._servers.oldest_held_s)
            if self._scenario.routing is Routing.LEAST
            else None,
            terminations=fleet.terminations,
        )

    def _facts(self, pod: Pod) -> ReplicaFacts:
        reading = self._readings.get(pod.number, _Reading())
        return ReplicaFacts(
            uid=pod.uid,
            name=pod.uid,
            phase=pod.phase,
            created_at=_stamp(pod.created_at),
            scheduled_at=None if pod.scheduled_at is None else _stamp(pod.scheduled_at),
            ready_at=None if pod.ready_at is None else _stamp(pod.ready_at),
            restarts=pod.restarts,
            unschedulable=None if pod.scheduled_at is not None else "0 nodes are available: insufficient capacity",
            failure=pod.failure,
            load=reading.load,
            load_age_s=None if reading.load is None else self._fleet.now - reading.at,
            scrape_error=reading.error,
        )

    def _hit(self) -> dict[int, list[tuple[int, Fault]]]:
        """By pod: the faults that it suffers now."""
        now, ready = self._fleet.now, self._fleet.ready()
        hit: dict[int, list[tuple[int, Fault]]] = {}
        for index, fault in enumerate(self._faults):
            lasts = math.inf if fault.kind is FaultKind.COUNTER_RESET else fault.seconds
            if fault.at <= now < fault.at + lasts:
                for pod in struck(ready, fault.share):
                    hit.setdefault(pod.number, []).append((index, fault))
        return hit

    def _read(
        self, pod: Pod, before: _Reading, faults: tuple[tuple[int, Fault], ...] | list[tuple[int, Fault]]
    ) -> _Reading:
        now = self._fleet.now
        kinds = {fault.kind: index for index, fault in faults}
        for kind, error in _ERRORS.items():
            if kind in kinds:
                return replace(before, error=error)
        if FaultKind.NAN in kinds:
            return replace(before, error=_nan_error())
        if FaultKind.COUNTER_RESET in kinds:
            index = kinds[FaultKind.COUNTER_RESET]
            if self._forgotten.get(pod.boot, (-1, None))[0] != index:
                self._forgotten[pod.boot] = index, self._reporter.told(pod)
        forgotten = self._forgotten.get(pod.boot)
        report = self._reporter.report(pod, now, forgotten[1] if forgotten else None)
        if FaultKind.STALE in kinds:
            report = self._stale.setdefault((kinds[FaultKind.STALE], pod.boot), report)
        return _Reading(report, now)


_DATA_FAULTS = (FaultKind.HTTP_500, FaultKind.TIMEOUT, FaultKind.NAN, FaultKind.STALE, FaultKind.COUNTER_RESET)


def _stamp(virtual: float) -> float:
    """The API server tells whole seconds."""
    return float(math.floor(EPOCH + virtual))


def _nan_error() -> str:
    """What the operator's own reader says of it."""
    try:
        read_load(_NAN_BODY)
    except UnreadableLoad as error:
        return str(error)
    raise AssertionError("a report of NaN was read")
