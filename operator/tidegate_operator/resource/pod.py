"""What a pod may use, and what a user may add to it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tidegate_operator.resource.base import Asked
from tidegate_operator.resource.quantity import Quantity

GPU = "nvidia.com/gpu"


class Resources(Asked):
    """Of the engine's container, as in any container."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class Toleration(Asked):
    """As in a pod."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = Field(default=None, ge=0)


class TopologySpread(Asked):
    """As in a pod, over this service's pods: the label selector is filled in."""

    max_skew: int = Field(default=1, ge=1)
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"


class KeyRef(Asked):
    """A key of a ConfigMap or Secret of the namespace."""

    name: str
    key: str


class EnvVar(Asked):
    """One environment variable of the engine; exactly one source."""

    name: str
    value: str | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class ClaimVolume(Asked):
    """An existing PersistentVolumeClaim."""

    claim_name: str


class NamedVolume(Asked):
    """An existing ConfigMap or Secret."""

    name: str


class EmptyVolume(Asked):
    """Scratch space that goes with the pod."""

    medium: Literal["", "Memory"] = ""
    size_limit: Quantity | None = None


class ImageVolume(Asked):
    """Files of an OCI image, read-only."""

    reference: str
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"


class Volume(Asked):
    """Files at a path of the engine's container; exactly one source."""

    name: str
    mount_path: str
    read_only: bool = True
    persistent_volume_claim: ClaimVolume | None = None
    config_map: NamedVolume | None = None
    secret: NamedVolume | None = None
    empty_dir: EmptyVolume | None = None
    image: ImageVolume | None = None


class PodOverrides(Asked):
    """Where pods run, and what is added to them."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None
    """Passed on as it is; the API server judges it when the Deployment is written."""
    topology_spread: tuple[TopologySpread, ...] = ()
    priority_class_name: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    env: tuple[EnvVar, ...] = ()
