"""The cluster's side: pods come, get a node, start, are ready, drain and go, as a Deployment asks for them."""

from __future__ import annotations

import heapq
import math
from enum import Enum

from tidegate_operator.observed import ContainerFailure, Phase

from tidegate_lab.simulate.pods import Pod, cold_start_s
from tidegate_lab.simulate.scenario import Fault, FaultKind, Scenario
from tidegate_lab.simulate.servers import Servers

_KEPT_TERMINATIONS = 5


class _Event(Enum):
    READY = "ready"
    KILL = "kill"
    LEAVE = "leave"
    RESTART = "restart"
    FAULT = "fault"
    ROOM = "room"


class Fleet:
    """Pods in virtual time. What they serve is the servers' business; the fleet says which of them may."""

    def __init__(self, scenario: Scenario, servers: Servers) -> None:
        self.now = 0.0
        self.pods: list[Pod] = []
        """Those that are there, in order of creation."""
        self.terminations: tuple[ContainerFailure, ...] = ()
        """Newest first."""
        self.wanted = scenario.first_replicas
        self.lost = 0
        """Requests that went down with their pod."""
        self.pod_seconds = 0.0
        """Of pods that are gone."""
        self._scenario, self._servers = scenario, servers
        self._events: list[tuple[float, int, _Event, int]] = []
        self._pushed = self._made = 0
        for index, fault in enumerate(scenario.faults):
            if fault.kind in (FaultKind.CRASH, FaultKind.POD_GONE):
                self._push(fault.at, _Event.FAULT, index)
            elif fault.kind is FaultKind.NO_CAPACITY:
                self._push(fault.at + fault.seconds, _Event.ROOM, index)
        for _ in range(scenario.first_replicas):
            self._begin_ready()

    def advance(self, until: float) -> None:
        """Let time pass up to `until`, which happens too."""
        while self._events and self._events[0][0] <= until:
            at, _, event, subject = heapq.heappop(self._events)
            self._serve(max(at, self.now))
            self._happen(event, subject)
        self._serve(until)

    def scale(self, replicas: int) -> None:
        """Ask for so many from now on. Raises ValueError below 0."""
        if replicas < 0:
            raise ValueError(f"replicas {replicas}: ask for 0 or more")
        self.wanted = replicas
        alive = [pod for pod in self.pods if pod.wanted]
        for _ in range(replicas - len(alive)):
            self._create()
        for pod in sorted(alive, key=self._worth)[: max(0, len(alive) - replicas)]:
            self._remove(pod)

    def ready(self) -> list[Pod]:
        """Oldest first."""
        return [pod for pod in self.pods if pod.phase is Phase.READY]

    def paid_seconds(self) -> float:
        """Pod-seconds up to the trace's end."""
        return self.pod_seconds + sum(self._age_paid(pod, self.now) for pod in self.pods)

    def _worth(self, pod: Pod) -> tuple[bool, bool, int, int]:
        """The ReplicaSet's order: without a node, not ready, then the lowest deletion cost, which the operator sets by
        the requests inside, then the newest."""
        ready = pod.phase is Phase.READY
        return pod.scheduled_at is not None, ready, self._servers.inside(pod.number) if ready else 0, -pod.number

    def _serve(self, until: float) -> None:
        self._servers.serve(until)
        self.now = until
        for pod in [p for p in self.pods if p.phase is Phase.DRAINING and until >= p.leaves_at]:
            if not self._servers.inside(pod.number):
                self._go(pod, max(pod.leaves_at, self._servers.idle_since(pod.number)))

    def _happen(self, event: _Event, subject: int) -> None:
        if event is _Event.FAULT:
            self._strike(self._scenario.faults[subject])
        elif event is _Event.ROOM:
            self._schedule(self.now)
        else:
            pod = next((p for p in self.pods if p.number == subject), None)
            if pod is None:
                return
            if event is _Event.READY and pod.phase is Phase.STARTING:
                pod.phase, pod.ready_at, pod.failure = Phase.READY, self.now, None
                self._servers.open(pod.number)
            elif event is _Event.KILL and pod.phase is Phase.DRAINING:
                self._go(pod, self.now)
            elif event is _Event.RESTART and pod.phase is Phase.FAILED:
                self._start(pod, self.now)

    def _begin_ready(self) -> None:
        pod = Pod(number=self._made, created_at=0.0)
        self._made += 1
        took = cold_start_s(self._scenario.cold_start, self._scenario.seed, pod.number, 0)
        pod.created_at = pod.scheduled_at = pod.booted_at = -took
        pod.phase, pod.ready_at = Phase.READY, 0.0
        self.pods.append(pod)
        self._servers.open(pod.number)

    def _create(self) -> None:
        self.pods.append(Pod(number=self._made, created_at=self.now))
        self._made += 1
        self._schedule(self.now)

    def _schedule(self, at: float) -> None:
        """Nodes for those without one, the oldest first, while there is room."""
        capacity = math.inf if self._scenario.capacity is None else self._scenario.capacity
        if any(
            fault.kind is FaultKind.NO_CAPACITY and fault.at <= self.now < fault.at + fault.seconds
            for fault in self._scenario.faults
        ):
            return
        placed = sum(pod.scheduled_at is not None for pod in self.pods)
        for pod in self.pods:
            if pod.scheduled_at is None and placed < capacity:
                placed += 1
                pod.scheduled_at = max(at, pod.created_at)
                self._start(pod, pod.scheduled_at)

    def _start(self, pod: Pod, at: float) -> None:
        pod.phase, pod.booted_at = Phase.STARTING, at
        took = cold_start_s(self._scenario.cold_start, self._scenario.seed, pod.number, pod.restarts)
        self._push(at + took, _Event.READY, pod.number)

    def _remove(self, pod: Pod) -> None:
        if pod.phase is not Phase.READY:
            self._go(pod, self.now)
            return
        self._servers.drain(pod.number)
        pod.phase, pod.ready_at = Phase.DRAINING, None
        pod.leaves_at = self.now + self._scenario.leaving_s
        inside = self._servers.inside(pod.number)
        if not inside and self._scenario.leaving_s <= 0:
            self._go(pod, self.now)
            return
        self._push(pod.leaves_at, _Event.LEAVE, pod.number)
        if inside:
            self._push(pod.leaves_at + self._scenario.drain_timeout_s, _Event.KILL, pod.number)

    def _go(self, pod: Pod, at: float) -> None:
        if pod.phase in (Phase.READY, Phase.DRAINING):
            self.lost += self._servers.close(pod.number)
        self.pods.remove(pod)
        self.pod_seconds += self._age_paid(pod, at)
        self._schedule(at)

    def _age_paid(self, pod: Pod, at: float) -> float:
        return max(0.0, min(at, self._scenario.trace.seconds) - max(0.0, pod.created_at))

    def _strike(self, fault: Fault) -> None:
        for pod in struck(self.ready(), fault.share):
            if fault.kind is FaultKind.POD_GONE:
                self._go(pod, self.now)
                self._create()
                continue
            self.lost += self._servers.close(pod.number)
            pod.restarts, pod.ready_at = pod.restarts + 1, None
            looping = fault.seconds > 0
            pod.failure = ContainerFailure(
                reason="CrashLoopBackOff" if looping else "Error", message="the runtime died", exit_code=4
            )
            self.terminations = (pod.failure, *self.terminations)[:_KEPT_TERMINATIONS]
            if looping:
                pod.phase = Phase.FAILED
                self._push(self.now + fault.seconds, _Event.RESTART, pod.number)
            else:
                self._start(pod, self.now)

    def _push(self, at: float, event: _Event, subject: int) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (at, self._pushed, event, subject))


def struck(ready: list[Pod], share: float) -> list[Pod]:
    """The oldest of the ready pods that make up a share of them, rounded up."""
    return ready[: math.ceil(share * len(ready) - 1e-9)]
