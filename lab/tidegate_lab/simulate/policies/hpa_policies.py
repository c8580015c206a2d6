"""Two ways to run an LLM service with a plain HPA: on its queue, through KEDA, and on its concurrency."""

from __future__ import annotations

from tidegate_operator.observed import Phase, ServiceObserved

from tidegate_lab.simulate.policies.hpa import SYNC_S, Behavior, external_average, pods_average
from tidegate_lab.simulate.policies.signals import held, inside, loads, wanted
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

QUEUE_TARGET = 5.0
CONCURRENCY_TARGET = 16.0


class KedaQueue:
    """A ScaledObject on the sum of waiting requests, everything else KEDA's and the HPA's default.

    The target of 5 is the default trigger of vllm-project/production-stack (helm/templates/scaledobject-vllm.yaml).
    KEDA's polling interval of 30 s governs only the way to and from zero; above, the HPA asks every 15 s. An answer
    without series is 0 (the Prometheus scaler's ignoreNullValues is true).
    """

    name = "keda-queue"
    interval_s = SYNC_S
    wants_sketches = False

    def __init__(self, told: Told, target: float = QUEUE_TARGET) -> None:
        self.told, self.target = told, target
        self.behavior = Behavior()

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        waiting = sum(load.waiting for load in loads(observed).values()) + held(observed)
        current = wanted(observed)
        recommended = external_average(waiting, self.target, current)
        replicas = self.told.within(self.behavior.settle(now, current, self.told.within(recommended)))
        return Choice(replicas=replicas, message=f"{waiting} waiting, {self.target:g} a replica")


class HpaConcurrency:
    """An HPA on requests in each pod, running and waiting, as a Pods metric.

    The target of 16 running requests a replica is llm-d's (guides/workload-autoscaling/keda-epp-queue).
    """

    name = "hpa-concurrency"
    interval_s = SYNC_S
    wants_sketches = False

    def __init__(self, told: Told, target: float = CONCURRENCY_TARGET) -> None:
        self.told, self.target = told, target
        self.behavior = Behavior()

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        reports, current = loads(observed), wanted(observed)
        pending = sum(pod.phase is Phase.PENDING for pod in observed.replicas)
        started = sum(pod.phase in (Phase.STARTING, Phase.READY) for pod in observed.replicas)
        recommended = pods_average(
            [load.running + load.waiting for load in reports.values()],
            self.target,
            current,
            pending=pending,
            silent=started - len(reports),
        )
        replicas = self.told.within(self.behavior.settle(now, current, self.told.within(recommended)))
        return Choice(replicas=replicas, message=f"{inside(observed)} inside, {self.target:g} a replica")
