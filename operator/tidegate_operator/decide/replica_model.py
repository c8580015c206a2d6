"""What one replica carries within the targets: from the time its steps take, and the lengths of requests seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tidegate_operator.decide.scaling_policy import Metric, ScalingPolicy
from tidegate_operator.observed import StepModel

FULL_CACHE = 0.9
"""Share of the KV cache that may be in use on average; what runs grows by chance too, and preempts beyond."""
FULL_STEPS = 0.9
"""Share of its time that a replica may compute: at this one a step takes ten times the time of an empty one."""
TPOT_ROOM = 0.85
"""Share of the TPOT target, beyond what an empty step takes, that the mean step may take: the p99 is above the mean."""


class Bound(StrEnum):
    """What a replica runs out of first."""

    TPOT = "TPOT"
    KV_CACHE = "KV cache"
    SLOTS = "slots"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSize:
    """The mean request, as far as it is known."""

    prompt_tokens: float
    """Computed ones: what the prefix cache spares costs nothing."""
    output_tokens: float
    kv_tokens: float
    """Held in the cache by a running request, on average over time (long requests are there for longer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What replicas have said of themselves."""

    step: StepModel
    slots: int
    kv_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """A replica as a place where `concurrency` requests run side by side, each for `service_s`."""

    concurrency: float
    service_s: float
    bound: Bound
    first_token_s: float = 0.0
    """What the mean request needs for its first token where it does not wait."""

    @property
    def rate(self) -> float:
        """Requests a second, flat out."""
        return self.concurrency / self.service_s


def model_of(equipment: Equipment, size: RequestSize, policy: ScalingPolicy) -> ReplicaModel:
    """The most requests that may run at a time, and how long each then takes.

    In steady state a step of N requests computes N tokens of answers and, for each answer that ends, one prompt:
    T(N) = a + N (b (1 + prompt / output) + c kv).
    """
    a, output, each = equipment.step.a, max(1.0, size.output_tokens), _each(equipment, size)
    limits = {Bound.SLOTS: float(equipment.slots), Bound.COMPUTE: _divided(FULL_STEPS / (1 - FULL_STEPS) * a, each)}
    if equipment.kv_tokens and size.kv_tokens > 0:
        limits[Bound.KV_CACHE] = FULL_CACHE * equipment.kv_tokens / size.kv_tokens
    tpot = policy.target(Metric.TPOT)
    if tpot is not None:
        limits[Bound.TPOT] = _divided(TPOT_ROOM * (tpot - a), each)
    bound = min(limits, key=lambda name: limits[name])
    concurrency = max(1.0, limits[bound])
    step_s = a + concurrency * each
    return ReplicaModel(
        concurrency=concurrency,
        service_s=max(1e-3, output * step_s),
        bound=bound,
        first_token_s=_first_token_s(equipment, size),
    )


def out_of_reach(equipment: Equipment, size: RequestSize, policy: ScalingPolicy) -> frozenset[Metric]:
    """The metrics whose targets the mean request misses even alone on a replica: no number of them reaches those."""
    step, first = equipment.step.a + _each(equipment, size), _first_token_s(equipment, size)
    alone = {Metric.TTFT: first, Metric.TPOT: step, Metric.E2E: first + (size.output_tokens - 1) * step}
    return frozenset(target.metric for target in policy.targets if alone[target.metric] > target.seconds)


def _each(equipment: Equipment, size: RequestSize) -> float:
    """Seconds that one more request adds to a step."""
    step = equipment.step
    return step.b * (1 + size.prompt_tokens / max(1.0, size.output_tokens)) + step.c * size.kv_tokens


def _first_token_s(equipment: Equipment, size: RequestSize) -> float:
    return equipment.step.a + equipment.step.b * size.prompt_tokens


def _divided(room: float, each: float) -> float:
    return max(0.0, room / each) if each > 0 else math.inf
