"""NVIDIA Dynamo's load mode for aggregated engines, by static thresholds and by its latency targets.

From ai-dynamo/dynamo components/src/dynamo/planner/core/load_scaling.py at 0c6da1e and config/{planner_config,
defaults}.py (2026): every 5 s one replica more or one fewer, and nothing while a change is under way or a worker does
not report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidegate_operator.observed import LoadReport, ServiceObserved

from tidegate_lab.simulate.policies.signals import Lengths, kv_usage, loads, ready, wanted
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice

THROUGHPUT_UP, THROUGHPUT_DOWN = 1.0, 0.6
SENSITIVITY = 0.8
LENGTHS_S = 300.0


class _Planner(ABC):
    interval_s = 5.0
    wants_sketches = False

    def __init__(self, told: Told) -> None:
        self.told = told
        self.lengths = Lengths(LENGTHS_S)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        reports, current = loads(observed), wanted(observed)
        self.lengths.look(now, reports)
        if len(ready(observed)) != current:
            return Choice(replicas=current, reason="ScalingInProgress")
        if len(reports) != current:
            return Choice(replicas=current, reason="WorkerCountMismatch")
        step = self.step(reports)
        return Choice(replicas=self.told.within(current + step))

    @abstractmethod
    def step(self, reports: dict[str, LoadReport]) -> int:
        """1, 0 or -1 replicas more."""

    def queued_prefill(self, load: LoadReport) -> float:
        """Tokens of prompts that wait; the mean prompt stands for each."""
        return load.waiting * self.lengths.prompt()


class DynamoLoad(_Planner):
    """`optimization_target: throughput`, the default: KV cache in use and queued over its size; one more where any
    replica is above 1.0, one fewer where all are below 0.6. `up` scales both (0.4 up is its `latency` target)."""

    name = "dynamo-load"

    def __init__(self, told: Told, up: float = THROUGHPUT_UP) -> None:
        super().__init__(told)
        self.up, self.down = up, up * THROUGHPUT_DOWN / THROUGHPUT_UP

    def step(self, reports: dict[str, LoadReport]) -> int:
        used = [kv_usage(load) + self.queued_prefill(load) / self.told.engine.kv_tokens for load in reports.values()]
        if any(share > self.up for share in used):
            return 1
        return -1 if len(used) > 1 and all(share < self.down for share in used) else 0


class DynamoSla(_Planner):
    """`optimization_target: sla`: the step model predicts TTFT and time between tokens of each replica; one more where
    every replica misses a target, one fewer where both hold with the load of one spread over the rest. Its regression
    of steps is the engine's own step model here. `sensitivity` is its main setting (80 % by default)."""

    name = "dynamo-sla"

    def __init__(self, told: Told, sensitivity: float = SENSITIVITY) -> None:
        super().__init__(told)
        self.sensitivity = sensitivity
        self.ttft, self.tpot = told.targets.ttft_s or float("inf"), told.targets.tpot_s or float("inf")

    def step(self, reports: dict[str, LoadReport]) -> int:
        states = [(self.queued_prefill(load), self._held(load)) for load in reports.values()]
        if all(self._ttft(queued, kv) > self.ttft for queued, kv in states):
            return 1
        if all(self._between(kv) > self.tpot for _, kv in states):
            return 1
        count = len(states)
        if count < 2:
            return 0
        more = count / (count - 1)
        return -1 if all(self._bearable(queued * more, kv * more) for queued, kv in states) else 0

    def _held(self, load: LoadReport) -> float:
        return kv_usage(load) * self.told.engine.kv_tokens

    def _ttft(self, queued: float, kv: float) -> float:
        """Steps of a full budget until the queue and one more mean prompt are computed."""
        engine, tokens = self.told.engine, queued + self.lengths.prompt()
        steps = max(1.0, -(-tokens // engine.token_budget))
        return steps * (engine.step.a + engine.step.c * kv) + engine.step.b * tokens

    def _between(self, kv: float) -> float:
        """A step of decodes alone; their number follows from what they hold."""
        mean = max(1.0, self.lengths.prompt() + self.lengths.answer() / 2)
        step = self.told.engine.step
        return step.a + step.b * kv / mean + step.c * kv

    def _bearable(self, queued: float, kv: float) -> bool:
        if kv + queued >= self.told.engine.kv_tokens:
            return False
        alone = self._ttft(0, kv)
        room = (self.ttft - alone) * self.sensitivity
        if room <= 0 or self._ttft(queued, kv) - alone >= room:
            return False
        return self._between(kv + queued) < self.tpot * self.sensitivity
