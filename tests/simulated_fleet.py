"""A small deterministic fleet in virtual time: pods with cold starts and slots, first come first served, one `decide`.

It knows nothing of how decisions are made; it only serves requests, tells what pods would tell, and does as decided.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.observed import DeploymentFacts, GatewayFacts, LoadReport, Phase, ReplicaFacts, ServiceObserved
from tidegate_operator.observed_load import Counters, KvBlocks, Sketches
from tidegate_operator.observed_sketch import Sketch

EPOCH = 1_700_000_000.0


@dataclass
class Request:
    arrived: float
    tokens_left: float
    tokens: float
    started: float | None = None
    first: float | None = None


@dataclass
class Pod:
    number: int
    created: float
    ready_at: float
    boot: int = 0
    booted: float = 0.0
    draining: bool = False
    frozen: bool = False
    failure: bool = False
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    received: int = 0
    finished: int = 0
    generated: float = 0.0
    steps: int = 0
    last_step: float | None = None
    ttft: Counter[int] = field(default_factory=Counter)
    tpot: Counter[int] = field(default_factory=Counter)
    e2e: Counter[int] = field(default_factory=Counter)

    @property
    def uid(self) -> str:
        return f"uid-{self.number}"

    def restart(self, now: float, cold_start_s: float) -> None:
        """The process dies: what it held and had counted is gone."""
        self.boot, self.booted, self.ready_at = self.boot + 1, now, now + cold_start_s
        self.received = self.finished = self.steps = 0
        self.generated, self.last_step = 0.0, None
        self.ttft, self.tpot, self.e2e = Counter(), Counter(), Counter()
        self.waiting.clear()
        self.running.clear()


@dataclass
class Look:
    at: float
    decision: Decision
    ready: int
    pods: int
    waiting: int


@dataclass
class Fleet:
    """`rate(t)` is requests per second at t seconds; a pod makes `tokens_per_s`, shared by all it runs or by slot."""

    policy: ScalingPolicy
    rate: Callable[[float], float]
    slots: int = 4
    tokens_per_s: float = 40.0
    tokens: float = 20.0
    cold_start_s: float = 10.0
    shared: bool = False
    drawn: random.Random | None = None
    """None: arrivals evenly spaced and requests alike; else Poisson, and lengths from half to one and a half."""
    distort: Callable[[float, ReplicaFacts], ReplicaFacts | None] = lambda now, facts: facts
    """What becomes of a pod's facts on the way to the operator; None: the pod is not listed."""
    before_look: Callable[[float, Fleet], None] = lambda now, fleet: None
    gateway: Callable[[float], GatewayFacts | None] = lambda now: None
    broken_from: int | None = None
    """Pods from this number on never start: their image cannot be pulled."""
    interval_s: float = 2.0
    report_age_s: float = 0.3
    step_s: float = 0.1
    now: float = 0.0
    replicas: int = 1
    pods: list[Pod] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    looks: list[Look] = field(default_factory=list)
    _owed: float = 0.0
    _made: int = 0
    _turn: int = 0

    def __post_init__(self) -> None:
        while len(self.pods) < self.replicas:
            self._create(ready=True)

    def run(self, seconds: float) -> list[Look]:
        """Let time pass; returns the looks made in it."""
        first, end, next_look = len(self.looks), self.now + seconds, self.now
        while self.now < end - 1e-9:
            if self.now >= next_look - 1e-9:
                self._look()
                next_look += self.interval_s
            self._arrive()
            for pod in self.pods:
                self._serve(pod)
            self.pods = [p for p in self.pods if not (p.draining and not p.running and not p.waiting)]
            self.now = round(self.now + self.step_s, 6)
        return self.looks[first:]

    def observe(self) -> ServiceObserved:
        """What the operator sees now."""
        facts = [self._facts(p) for p in self.pods]
        listed = tuple(seen for f in facts if (seen := self.distort(self.now, f)) is not None)
        return ServiceObserved(
            deployment=DeploymentFacts(generation=1, observed_generation=1, replicas=self.replicas),
            replicas=listed,
            gateway=self.gateway(self.now),
        )

    def _look(self) -> None:
        self.before_look(self.now, self)
        decision = decide(self.policy, self.observe(), self.memory, EPOCH + self.now)
        self.memory = decision.memory
        serving = [p for p in self.pods if self._ready(p)]
        waiting = sum(len(p.waiting) for p in self.pods)
        self.looks.append(Look(self.now, decision, len(serving), len(self.pods), waiting))
        self.replicas = decision.replicas
        alive = [p for p in self.pods if not p.draining]
        for _ in range(self.replicas - len(alive)):
            self._create()
        # As the ReplicaSet: not ready first, then the newest.
        for pod in sorted(alive, key=lambda p: (self._ready(p), -p.number))[: max(0, len(alive) - self.replicas)]:
            pod.draining = True

    def _create(self, ready: bool = False) -> None:
        created = self.now - (self.cold_start_s if ready else 0.0)
        broken = self.broken_from is not None and self._made >= self.broken_from
        start = 1e12 if broken else created + self.cold_start_s
        self.pods.append(Pod(self._made, created, start, booted=created, failure=broken))
        self._made += 1

    def _ready(self, pod: Pod) -> bool:
        return self.now >= pod.ready_at and not pod.draining

    def _arrive(self) -> None:
        expected = self.rate(self.now) * self.step_s
        if self.drawn is None:
            self._owed += expected
            count = int(self._owed + 1e-9)
            self._owed -= count
        else:
            count, left = 0, self.drawn.expovariate(1.0)
            while left < expected:
                count, left = count + 1, left + self.drawn.expovariate(1.0)
        for _ in range(count):
            serving = [p for p in self.pods if self._ready(p)]
            if not serving:
                return
            self._turn += 1
            pod = self.drawn.choice(serving) if self.drawn else serving[self._turn % len(serving)]
            size = self.tokens * (self.drawn.uniform(0.5, 1.5) if self.drawn else 1.0)
            pod.received += 1
            pod.waiting.append(Request(self.now, size, size))

    def _serve(self, pod: Pod) -> None:
        if self.now < pod.ready_at or pod.frozen:
            return
        while pod.waiting and len(pod.running) < self.slots:
            pod.running.append(pod.waiting.popleft())
        if not pod.running:
            return
        pod.steps, pod.last_step = pod.steps + 1, self.now
        each = self.tokens_per_s * self.step_s / (len(pod.running) if self.shared else self.slots)
        end = self.now + self.step_s
        for request in list(pod.running):
            done = min(each, request.tokens_left)
            pod.generated += done
            request.tokens_left -= done
            if request.first is None:
                request.first = end
                pod.ttft[_bin(end - request.arrived)] += 1
            if request.tokens_left <= 1e-9:
                pod.running.remove(request)
                pod.finished += 1
                pod.e2e[_bin(end - request.arrived)] += 1
                pod.tpot[_bin((end - request.first) / max(1.0, request.tokens - 1))] += 1

    def _facts(self, pod: Pod) -> ReplicaFacts:
        ready = self._ready(pod)
        phase = Phase.DRAINING if pod.draining else Phase.READY if ready else Phase.STARTING
        facts = ReplicaFacts(
            uid=pod.uid,
            name=f"pod-{pod.number}",
            phase=Phase.FAILED if pod.failure and not pod.draining else phase,
            created_at=EPOCH + pod.created,
            scheduled_at=EPOCH + pod.created,
            ready_at=float(int(EPOCH + pod.ready_at)) if ready else None,
            restarts=pod.boot,
        )
        if not ready and not pod.draining:
            return facts
        return replace(facts, load=self._report(pod), load_age_s=self.report_age_s)

    def _report(self, pod: Pod) -> LoadReport:
        """As of now; its age is only claimed, so that the operator must do without the newest."""
        waits = [self.now - r.arrived for r in pod.waiting]
        unfinished = waits + [self.now - r.arrived for r in pod.running]
        streams = [
            (self.now - r.first) / (r.tokens - r.tokens_left - 1)
            for r in pod.running
            if r.first is not None and r.tokens - r.tokens_left >= 2
        ]
        return LoadReport(
            version=1,
            boot=f"boot-{pod.number}-{pod.boot}",
            state="ready",
            uptime_s=max(0.0, self.now - pod.booted),
            slots=self.slots,
            running=len(pod.running),
            waiting=len(pod.waiting),
            oldest_waiting_s=max(waits, default=None),
            oldest_unfinished_s=max(unfinished, default=None),
            kv_blocks=KvBlocks(total=100, used=len(pod.running)),
            counters=Counters(
                received=pod.received, finished=pod.finished, generated_tokens=int(pod.generated), steps=pod.steps
            ),
            last_step_age_s=None if pod.last_step is None else max(0.0, self.now - pod.last_step),
            sketches=Sketches(ttft=_sketch(pod.ttft), tpot=_sketch(pod.tpot), e2e=_sketch(pod.e2e)),
            waiting_ages=Sketch.of(waits),
            running_tpot=Sketch.of(streams),
        )


def _bin(seconds: float) -> int:
    return Sketch.of([max(seconds, 2e-6)]).bins[0][0]


def _sketch(counted: Counter[int]) -> Sketch:
    return Sketch(0, tuple(sorted(counted.items())))
