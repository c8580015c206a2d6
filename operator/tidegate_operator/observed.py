"""The facts about one InferenceService, as seen in one look at the world. Law: the standard library and pydantic.

`world` fills these, `decide` reads them. Times called `..._at` are seconds since the epoch, as the API server tells
them; those called `..._s` are durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidegate_operator.observed_load import LoadReport, StepModel, UnreadableLoad, read_load
from tidegate_operator.observed_sketch import Sketch

__all__ = [
    "ChildConflict",
    "ConditionFacts",
    "ContainerFailure",
    "DeploymentFacts",
    "GatewayFacts",
    "LoadReport",
    "Phase",
    "ReplicaFacts",
    "ServiceKey",
    "ServiceObserved",
    "Sketch",
    "StepModel",
    "UnreadableLoad",
    "read_load",
]


class ServiceKey(NamedTuple):
    """Names one InferenceService in the cluster."""

    namespace: str
    name: str


class Phase(StrEnum):
    """Where an engine pod is in its life; exactly one holds."""

    PENDING = "pending"
    """Not on a node yet, or its container has not started (image being pulled)."""
    STARTING = "starting"
    """The container runs, the pod is not Ready."""
    READY = "ready"
    """Ready in Kubernetes' sense, not being deleted."""
    DRAINING = "draining"
    """Being deleted (deletionTimestamp is set), or drained through its admin port."""
    FAILED = "failed"
    """Cannot start as it is: image pull fails, crash loop, evicted; `failure` says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFailure:
    """Why the container `engine` does not run, in Kubernetes' own words."""

    reason: str
    """ErrImagePull, ImagePullBackOff, InvalidImageName, CrashLoopBackOff, CreateContainerConfigError, OOMKilled, Error,
    Evicted…"""
    message: str = ""
    """The waiting state's message, or the termination message (the engine's one line)."""
    exit_code: int | None = None
    """Of the last termination: 2 configuration, 3 model file, 4 the runtime died, 137 killed. None: never ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """One engine pod. Pods that ended (Succeeded, or Failed and being replaced) are left out by the observer."""

    uid: str
    name: str
    phase: Phase
    created_at: float
    current: bool = True
    """It runs the Deployment's current template (its ReplicaSet is the newest)."""
    scheduled_at: float | None = None
    """When it got a node (condition PodScheduled); None: not yet."""
    ready_at: float | None = None
    """When it last became Ready (condition Ready); None: it is not Ready now."""
    restarts: int = 0
    unschedulable: str | None = None
    """The scheduler's own words (PodScheduled=False, reason Unschedulable); None: it has said nothing."""
    failure: ContainerFailure | None = None
    """Set where `phase` is FAILED, and while a container that ended badly is being started again."""
    load: LoadReport | None = None
    """The last report that could be read; None: none ever was."""
    load_age_s: float | None = None
    """Seconds since `load` was read; None where `load` is."""
    scrape_error: str | None = None
    """Why the newest attempt to read `/load` failed, one line; None: it did not, or none was made."""
    deletion_cost: int | None = None
    """Annotation controller.kubernetes.io/pod-deletion-cost; None: not set."""

    @property
    def boot(self) -> str | None:
        """The nonce of the process that counted `load`."""
        return self.load.boot if self.load else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionFacts:
    """A condition of a child, in its controller's own words."""

    status: str
    """True, False or Unknown."""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """The Deployment that carries the service's name."""

    generation: int
    observed_generation: int
    replicas: int
    """spec.replicas, the live value: what the operator must send back unless it decides otherwise."""
    current: int = 0
    """status.replicas: pods that are there, of any template, those being deleted left out."""
    ready: int = 0
    updated: int = 0
    available: int = 0
    unavailable: int = 0
    progressing: ConditionFacts | None = None
    replica_failure: ConditionFacts | None = None
    """Pods cannot be created (quota, pod security): condition ReplicaFailure."""
    template_hash: str | None = None
    """The annotation on the live object: hash of the spec its template was rendered from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    """What the front door holds for this service; absent until there is a gateway."""

    held: int
    oldest_held_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildConflict:
    """An object stands under a child's name that this service does not own, so it is not touched."""

    kind: str
    name: str
    owner: str
    """Who owns or manages it, as far as it says: `Deployment/web`, `helm`, `nobody`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObserved:
    """Everything seen about one InferenceService."""

    deployment: DeploymentFacts | None = None
    """None: there is none yet."""
    replicas: tuple[ReplicaFacts, ...] = ()
    ready_endpoint_uids: frozenset[str] = frozenset()
    """Pods that the service's EndpointSlices list as ready."""
    gateway: GatewayFacts | None = None
    terminations: tuple[ContainerFailure, ...] = ()
    """Containers that ended with a code other than 0, newest first, at most a handful: model problems show here first,
    also while the pod that had them is being started again."""
    conflicts: tuple[ChildConflict, ...] = ()
