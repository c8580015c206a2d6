"""What the user asked of scaling, in numbers: seconds and counts, defaults applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tidegate_operator.resource import Cron


class Mode(StrEnum):
    """Who chooses the number of replicas."""

    FIXED = "fixed"
    """The user, by `spec.replicas`, or nobody: one."""
    AUTO = "auto"
    ADVISORY = "advisory"
    """The user; the operator says what it would choose."""
    EXTERNAL = "external"
    """Whoever writes the scale subresource."""


class Metric(StrEnum):
    """A latency that can have a target; the names are those of the load report's sketches."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """The p99 of `metric` is to be at most `seconds`."""

    metric: Metric
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most `pods` replicas, or `percent` of those there were, in any `period_s`; as in the HPA."""

    period_s: float
    pods: int | None = None
    percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """How scaling may move one way. Of several rates the most generous counts, unless `strictest` is set."""

    window_s: float = 0.0
    evenly_s: float | None = None
    """The window where requests arrive evenly; None: `window_s`, however they arrive."""
    rates: tuple[Rate, ...] = ()
    strictest: bool = False
    disabled: bool = False


ADAPTING_DOWN = Direction(window_s=300.0, evenly_s=120.0)
"""Where the user asks for no window: what comes in bursts comes back, and a cold start too late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Other bounds, from each time of `cron` on for `duration_s`."""

    name: str
    cron: Cron
    time_zone: str
    duration_s: float
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """In any currency."""

    per_replica_hour: float
    max_per_hour: float | None = None
    """The most that all replicas together may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """Everything the decision takes from the spec."""

    mode: Mode = Mode.AUTO
    paused: bool = False
    replicas: int = 1
    """What is run in the modes fixed, advisory and external (there: where nobody has written yet)."""
    minimum: int = 1
    maximum: int = 1
    minimum_by: str = "minReplicas"
    """What set the bound, as it is told in `limited_by`."""
    maximum_by: str = "maxReplicas"
    schedules: tuple[Schedule, ...] = ()
    price: Price | None = None
    queue_depth: float = 1.0
    """Waiting requests allowed per replica, on average."""
    targets: tuple[LatencyTarget, ...] = ()
    headroom: float = 0.0
    """How much more than what is predicted the replicas are to bear, as a share of it; below 0 for less."""
    late_allowed: float = 0.01
    """Share of requests that may miss a target: 1 % is what a p99 means."""
    scale_to_zero_after_s: float | None = None
    up: Direction = field(default_factory=Direction)
    down: Direction = ADAPTING_DOWN
    slots: int = 32
    """`engine.maxRunningRequests`: the prior until a replica has said its own."""
    stale_after_s: float = 10.0
    stalled_after_s: float = 30.0

    def target(self, metric: Metric) -> float | None:
        """Seconds that this p99 is to be at most; None: it has no target."""
        return next((target.seconds for target in self.targets if target.metric is metric), None)
