"""`status`, whole. Times are RFC 3339 in UTC where people read them, seconds since the epoch in `learned`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tidegate_operator.resource.base import Told
from tidegate_operator.resource.quantity import Shown


class Condition(Told):
    """As metav1.Condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    observed_generation: int = 0
    last_transition_time: str
    reason: str
    message: str


class Percentiles(Told):
    """Of the requests that finished in the last while."""

    p50: Shown | None = None
    p95: Shown | None = None
    p99: Shown | None = None


class LatencyStatus(Told):
    """Over all replicas; absent where nothing finished."""

    ttft: Percentiles | None = None
    tpot: Percentiles | None = None
    e2e: Percentiles | None = None


class TermStatus(Told):
    """What one term of the decision asks for."""

    name: str
    replicas: int | None = None
    """None: it has no opinion."""
    message: str = ""
    inputs: dict[str, float] = Field(default_factory=dict)


class Learned(Told):
    """What the operator keeps over its own restarts."""

    cold_starts_seconds: tuple[float, ...] = ()
    capacity: float | None = None
    """Tokens (prompt and generated) per second of a full replica."""
    tokens_per_request: float | None = None
    step_seconds: tuple[float, ...] = ()
    """The step model: a constant, per token computed, per token held."""
    slots: int | None = None
    kv_tokens: int | None = None
    request_tokens: tuple[float, ...] = ()
    """The mean request: prompt, answer, held in the cache."""
    efficiency: float | None = None
    hold_seconds: float | None = None
    """How far back arrivals are replayed, since peaks came again after so long."""
    safe_utilisation: float | None = None
    safe_utilisation_at: float | None = None
    newest_ready_at: float = 0.0
    last_up_at: float | None = None
    last_change_at: float | None = None
    p99_steps: int = 0
    p99_share: float | None = None


class Change(Told):
    """A decision that differed from the one before, as it was made: what was seen, and what came of it."""

    time: str
    desired: int
    before: int
    recommended: int | None = None
    reason: str
    message: str = ""
    term: str | None = None
    terms: tuple[TermStatus, ...] = ()
    limited_by: tuple[str, ...] = ()
    data_state: str | None = None


class ScalingStatus(Told):
    """How the number of replicas came about."""

    mode: Literal["fixed", "auto", "advisory", "external"] | None = None
    desired: int
    current: int
    recommended: int | None = None
    """What scaling would choose, where somebody else does (advisory, external, paused)."""
    reason: str
    message: str = ""
    term: str | None = None
    """The term that won."""
    terms: tuple[TermStatus, ...] = ()
    limited_by: tuple[str, ...] = ()
    data_state: str | None = None
    queue_depth: int | None = None
    """Requests that wait now, over all replicas."""
    running: int | None = None
    cold_start: Shown | None = None
    last_change_time: str | None = None
    history: tuple[Change, ...] = ()
    """The newest changes, newest first."""
    learned: Learned | None = None


class CostStatus(Told):
    """In the currency of `spec.cost`."""

    per_hour: float | None = None
    """Of the replicas that have a node now."""
    per_million_tokens: float | None = None


class InferenceServiceStatus(Told):
    """What the operator says of the service."""

    observed_generation: int | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    ready: str | None = None
    """Ready over wanted, as in `2/3`, for kubectl's table."""
    selector: str | None = None
    url: str | None = None
    conditions: tuple[Condition, ...] = ()
    scaling: ScalingStatus | None = None
    latency: LatencyStatus | None = None
    cost: CostStatus | None = None


def read_status(status: Mapping[str, Any]) -> InferenceServiceStatus:
    """The status as an operator once wrote it. Raises pydantic.ValidationError where it is no status at all."""
    return InferenceServiceStatus.model_validate(status)
