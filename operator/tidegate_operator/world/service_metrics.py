"""What `/metrics` and an HPA are told of each service: its newest status as numbers, gone with the service.

A number that is not known has no series, nor has one that nobody has looked at for a while: an autoscaler holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import InferenceServiceStatus

OLDEST_S = 120.0
"""The slowest look, at a service that waits for a person, comes once a minute."""
_INCOMPLETE = frozenset({"Partial", "Stale", "Missing"})


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and what it means; each has the labels `namespace` and `service`."""

    name: str
    help: str
    label: str | None = None
    """One more label, of a few fixed values."""


DESIRED = Family("tidegate_service_desired_replicas", "Replicas that scaling would run, whoever decides")
REPLICAS = Family("tidegate_service_replicas", "Replicas asked of the Deployment")
READY = Family("tidegate_service_ready_replicas", "Replicas that are ready")
PRESSURE = Family("tidegate_service_pressure", "Desired over ready replicas; no series while none is ready")
QUEUE = Family("tidegate_service_queue_depth", "Requests that wait; no series while a ready replica is silent")
RUNNING = Family(
    "tidegate_service_running_requests", "Requests being answered, as far as every ready replica was heard"
)
P99 = Family("tidegate_service_p99_seconds", "p99 of the requests of the last minute: ttft, tpot, e2e", "latency")
PER_HOUR = Family("tidegate_service_cost_per_hour", "Of the replicas that have a node, in the currency of spec.cost")
PER_TOKENS = Family("tidegate_service_cost_per_million_tokens", "Of the last minute, in the currency of spec.cost")
FAMILIES = (DESIRED, REPLICAS, READY, PRESSURE, QUEUE, RUNNING, P99, PER_HOUR, PER_TOKENS)


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one service."""

    family: Family
    labels: Mapping[str, str]
    value: float


class ServiceMetrics(Collector):
    """The newest status of every service, read at each scrape."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shown: dict[ServiceKey, tuple[float, InferenceServiceStatus]] = {}

    def show(self, key: ServiceKey, status: InferenceServiceStatus | None) -> None:
        """How the service stands; None: it is gone, or nothing can be said of it."""
        if status is None:
            self._shown.pop(key, None)
        else:
            self._shown[key] = (self._clock(), status)

    def withdraw(self) -> None:
        """This process speaks for no service any more."""
        self._shown.clear()

    def of(self, key: ServiceKey) -> Iterator[Sample]:
        """Every number that is known of one service; none where there is no such service."""
        return self._samples([key] if key in self._shown else [])

    def describe(self) -> Iterable[Metric]:
        """The registry asks for names once; without this it would collect for them."""
        return [GaugeMetricFamily(family.name, family.help) for family in FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """For `/metrics`."""
        found: dict[str, list[Sample]] = {family.name: [] for family in FAMILIES}
        for sample in self._samples(self._shown):
            found[sample.family.name].append(sample)
        for family in FAMILIES:
            names = ["namespace", "service", *([family.label] if family.label else [])]
            metric = GaugeMetricFamily(family.name, family.help, labels=names)
            for sample in found[family.name]:
                metric.add_metric([sample.labels[name] for name in names], sample.value)
            yield metric

    def _samples(self, keys: Iterable[ServiceKey]) -> Iterator[Sample]:
        now = self._clock()
        for key in sorted(keys):
            seen_at, status = self._shown[key]
            if now - seen_at <= OLDEST_S:
                labels = {"namespace": key.namespace, "service": key.name}
                for family, value in _values(status):
                    yield Sample(family, labels, value)
                for latency, value in _latencies(status):
                    yield Sample(P99, labels | {"latency": latency}, value)


def _values(status: InferenceServiceStatus) -> Iterator[tuple[Family, float]]:
    scaling, ready = status.scaling, status.ready_replicas or 0
    yield READY, float(ready)
    if scaling is not None:
        desired = scaling.desired if scaling.recommended is None else scaling.recommended
        yield DESIRED, float(desired)
        yield REPLICAS, float(scaling.current)
        if ready:
            # An HPA multiplies the ready pods by it, so that this quotient, and not that of `current`, gives `desired`.
            yield PRESSURE, desired / ready
        if scaling.data_state not in _INCOMPLETE:
            yield QUEUE, float(scaling.queue_depth or 0)
            yield RUNNING, float(scaling.running or 0)
    if status.cost is not None:
        if status.cost.per_hour is not None:
            yield PER_HOUR, status.cost.per_hour
        if status.cost.per_million_tokens is not None:
            yield PER_TOKENS, status.cost.per_million_tokens


def _latencies(status: InferenceServiceStatus) -> Iterator[tuple[str, float]]:
    latency = status.latency
    if latency is not None:
        for name, found in (("ttft", latency.ttft), ("tpot", latency.tpot), ("e2e", latency.e2e)):
            if found is not None and found.p99 is not None:
                yield name, found.p99
