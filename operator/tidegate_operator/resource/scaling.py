"""How the number of replicas is chosen. Windows, rates and their names are those of the HorizontalPodAutoscaler."""

from __future__ import annotations

from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from tidegate_operator.resource.base import Asked
from tidegate_operator.resource.cron import parse_cron
from tidegate_operator.resource.quantity import Duration


class LatencyTarget(Asked):
    """The highest p99 that is good enough, seconds."""

    p99: Duration


class Targets(Asked):
    """What replicas are added for."""

    queue_depth: int = Field(default=1, ge=1)
    """Requests that may wait per replica, on average."""
    ttft: LatencyTarget | None = None
    tpot: LatencyTarget | None = None
    e2e: LatencyTarget | None = None


class Policy(Asked):
    """A rate: at most so many replicas, or so many percent of them, in any period."""

    type: Literal["Pods", "Percent"]
    value: int = Field(ge=1)
    period_seconds: int = Field(ge=1)


class Direction(Asked):
    """One way the number may move."""

    policies: tuple[Policy, ...] = ()
    """None: no limit to the rate."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"


class ScaleUp(Direction):
    """At once by default."""

    stabilization_window_seconds: int = Field(default=0, ge=0)


DOWN = (
    Policy(type="Pods", value=1, period_seconds=60),
    Policy(type="Percent", value=50, period_seconds=60),
)


class ScaleDown(Direction):
    """Slower by default: capacity that is given up comes back after a cold start."""

    stabilization_window_seconds: int | None = Field(default=None, ge=0)
    """None: 2 minutes where requests arrive evenly, up to 5 where they come in bursts."""
    policies: tuple[Policy, ...] = DOWN


class Behavior(Asked):
    """Both ways."""

    scale_up: ScaleUp = ScaleUp()
    scale_down: ScaleDown = ScaleDown()


class Schedule(Asked):
    """A known peak or lull: other bounds, for a while, again and again."""

    name: str
    cron: str
    """When it begins."""
    time_zone: str = "UTC"
    """Of the IANA database, as in Europe/Berlin."""
    duration: Duration = Field(gt=0)
    min_replicas: int | None = Field(default=None, ge=1)
    max_replicas: int | None = Field(default=None, ge=1)

    @field_validator("cron")
    @classmethod
    def _can_be_read(cls, cron: str) -> str:
        parse_cron(cron)
        return cron

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no time zone; write one like Europe/Berlin") from error
        return name


class Scaling(Asked):
    """Present: the number follows the load. `mode` says whether the operator acts on it."""

    mode: Literal["auto", "advisory", "external"] = "auto"
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int | None = Field(default=None, ge=1)
    """None only in mode external, where the autoscaler that owns the scale subresource has bounds of its own."""
    targets: Targets = Targets()
    headroom_percent: int = Field(default=10, ge=-50, le=300)
    """How much more than what is predicted the replicas are to bear."""
    schedules: tuple[Schedule, ...] = ()
    scale_to_zero_after: Duration | None = None
    behavior: Behavior = Behavior()
