"""`spec`, whole, and reading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from tidegate_operator.resource.base import Asked
from tidegate_operator.resource.engine import Engine, Model, SecretKey
from tidegate_operator.resource.pod import PodOverrides, Resources
from tidegate_operator.resource.quantity import Duration
from tidegate_operator.resource.scaling import Scaling


class UnreadableSpec(ValueError):
    """A stored `spec` that this operator cannot act on: it got past admission, or comes from another version.

    The message is one line that names the field, the value and what is wrong.
    """


class Rollout(Asked):
    """How a change of the spec reaches running pods."""

    progress_deadline: Duration = Field(default=600.0, ge=1)
    """Seconds; a pod may take as long to load its model."""
    auto_rollback: bool = False
    max_surge: int | str = 1
    max_unavailable: int | str = 0


class Drain(Asked):
    """How pods end."""

    timeout: Duration = Field(default=300.0, ge=0)
    """Seconds that running requests get."""


class Cost(Asked):
    """What a replica costs, in any currency."""

    per_replica_hour: float = Field(ge=0)
    max_per_hour: float | None = Field(default=None, gt=0)
    """The most that the replicas of this service may cost together in an hour."""


class Auth(Asked):
    """Who may ask."""

    api_keys_secret_ref: SecretKey


class InferenceServiceSpec(Asked):
    """What a user asks for, defaults applied."""

    model: Model
    engine: Engine = Engine()
    resources: Resources = Resources()
    replicas: int | None = Field(default=None, ge=0)
    scaling: Scaling | None = None
    rollout: Rollout = Rollout()
    drain: Drain = Drain()
    cost: Cost | None = None
    auth: Auth | None = None
    paused: bool = False
    pod: PodOverrides = PodOverrides()


def read_spec(spec: Mapping[str, Any]) -> InferenceServiceSpec:
    """The spec as the API server has it. Raises UnreadableSpec."""
    try:
        return InferenceServiceSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(("spec", *(str(part) for part in first["loc"])))
        value = "" if first["type"] in ("missing", "value_error") else f", got {str(first['input'])[:80]!r}"
        raise UnreadableSpec(f"{field}: {first['msg'].removeprefix('Value error, ')}{value}") from error
