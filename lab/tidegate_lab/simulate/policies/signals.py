"""What a metrics pipeline shows of a fleet: gauges of the pods that answer, windows over them, rates of counters."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tidegate_operator.observed import LoadReport, Phase, ReplicaFacts, ServiceObserved, Sketch


def wanted(observed: ServiceObserved) -> int:
    """The replicas that were last asked for: `spec.replicas`."""
    return observed.deployment.replicas if observed.deployment else 0


def ready(observed: ServiceObserved) -> tuple[ReplicaFacts, ...]:
    """Pods that take requests."""
    return tuple(pod for pod in observed.replicas if pod.phase is Phase.READY)


def loads(observed: ServiceObserved) -> dict[str, LoadReport]:
    """By pod, what it said. A pod whose last scrape failed has no series, as in Prometheus; a stale one is believed."""
    return {pod.uid: pod.load for pod in ready(observed) if pod.load is not None and pod.scrape_error is None}


def held(observed: ServiceObserved) -> int:
    """Requests kept in front of the pods because none was ready."""
    return observed.gateway.held if observed.gateway else 0


def inside(observed: ServiceObserved) -> int:
    """Requests running, waiting and held."""
    return sum(load.running + load.waiting for load in loads(observed).values()) + held(observed)


def kv_usage(load: LoadReport) -> float:
    """Share of the KV cache that is taken, as vLLM's kv_cache_usage_perc."""
    return load.kv_blocks.used / load.kv_blocks.total if load.kv_blocks.total else 0.0


@dataclass(slots=True)
class Window:
    """Samples of the last `seconds`; what is exactly that old is out."""

    seconds: float
    samples: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now: float, value: float) -> None:
        self.samples.append((now, value))
        while self.samples[0][0] <= now - self.seconds:
            self.samples.popleft()

    def mean(self) -> float:
        """Of the samples there are, also while the window is not full yet; 0 where there is none."""
        return sum(value for _, value in self.samples) / len(self.samples) if self.samples else 0.0

    def quantile(self, q: float) -> float:
        """The nearest sample such that a share `q` is no greater; 0 where there is none."""
        ordered = sorted(value for _, value in self.samples)
        return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else 0.0

    def highest(self) -> float:
        """0 where there is none."""
        return max((value for _, value in self.samples), default=0.0)


@dataclass(slots=True)
class Lengths:
    """Mean tokens of prompts and answers over the last `seconds`, from the pods' counters."""

    seconds: float
    _before: dict[str, LoadReport] = field(default_factory=dict)
    _grown: deque[tuple[float, int, int, int, int]] = field(default_factory=deque)

    def look(self, now: float, reports: dict[str, LoadReport]) -> None:
        """Counters of a process that began anew count from zero."""
        grown = [0, 0, 0, 0]
        for uid, load in reports.items():
            before = self._before.get(uid)
            for i, name in enumerate(("prompt_tokens", "received", "generated_tokens", "finished")):
                count: int = getattr(load.counters, name)
                base: int = getattr(before.counters, name) if before and before.boot == load.boot else 0
                grown[i] += count - base if count >= base else count
        self._before = dict(reports)
        self._grown.append((now, *grown))  # type: ignore[arg-type]
        while self._grown[0][0] <= now - self.seconds:
            self._grown.popleft()

    def _ratio(self, tokens: int, requests: int) -> float:
        count = sum(sample[requests] for sample in self._grown)
        return sum(sample[tokens] for sample in self._grown) / count if count else 0.0

    def finished_per_s(self) -> float:
        """Of all pods together."""
        return sum(sample[4] for sample in self._grown) / self.seconds

    def prompt(self) -> float:
        """0 where nothing came."""
        return self._ratio(1, 2)

    def answer(self) -> float:
        """0 where nothing ended."""
        return self._ratio(3, 4)


@dataclass(slots=True)
class Latency:
    """The fleet's latencies of the last `seconds`: pods' cumulative sketches, by difference, merged."""

    metric: str
    """`ttft` or `tpot`."""
    seconds: float
    _before: dict[tuple[str, str], Sketch] = field(default_factory=dict)
    _grown: deque[tuple[float, Sketch]] = field(default_factory=deque)

    def look(self, now: float, reports: dict[str, LoadReport]) -> None:
        seen = {(uid, load.boot): getattr(load.sketches, self.metric) for uid, load in reports.items()}
        new = [sketch.since(self._before.get(key, Sketch())) for key, sketch in seen.items()]
        self._before = seen
        self._grown.append((now, Sketch.merged(new)))
        while self._grown[0][0] <= now - self.seconds:
            self._grown.popleft()

    def quantile(self, q: float) -> float | None:
        """Seconds; None where nothing was counted."""
        return Sketch.merged(sketch for _, sketch in self._grown).quantile(q)
