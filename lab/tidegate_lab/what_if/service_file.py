"""A service's file, as it would be applied: what simulating takes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from tidegate_operator.decide.scaling_policy import Mode, ScalingPolicy
from tidegate_operator.decide.scaling_spec import policy_of
from tidegate_operator.resource import InferenceServiceSpec, UnreadableSpec, read_spec

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.scenario import Targets
from tidegate_lab.what_if.bounds_checked import contradiction


class ServiceFileError(ValueError):
    """The file holds no service that could be simulated; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One InferenceService."""

    name: str
    spec: InferenceServiceSpec

    @property
    def policy(self) -> ScalingPolicy:
        """What the operator would do of itself, also where it is told only to advise."""
        policy = policy_of(self.spec)
        return policy if policy.mode is Mode.FIXED else replace(policy, mode=Mode.AUTO)

    @property
    def targets(self) -> Targets:
        """What a request must hold; without any, being answered is enough."""
        asked = None if self.spec.scaling is None else self.spec.scaling.targets
        ttft, tpot, e2e = (None, None, None) if asked is None else (asked.ttft, asked.tpot, asked.e2e)
        return Targets(
            ttft_s=ttft.p99 if ttft else None, tpot_s=tpot.p99 if tpot else None, e2e_s=e2e.p99 if e2e else None
        )

    @property
    def price(self) -> float | None:
        """Of a replica and hour; None: not said."""
        return None if self.spec.cost is None else self.spec.cost.per_replica_hour

    def engine(self, model: EngineModel) -> EngineModel:
        """The model with those limits that the file sets itself."""
        asked = self.spec.engine
        said = asked.model_fields_set
        return replace(
            model,
            slots=asked.max_running_requests if "max_running_requests" in said else model.slots,
            most_queued=asked.max_queued_requests if "max_queued_requests" in said else model.most_queued,
            token_budget=asked.chunked_prefill_tokens if "chunked_prefill_tokens" in said else model.token_budget,
        )


def read_service(path: str | Path) -> Service:
    """The one InferenceService of a YAML file, other objects left aside. Raises ServiceFileError."""
    try:
        documents = list(yaml.safe_load_all(Path(path).read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceFileError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ServiceFileError(
            f"{path}{where}: is no YAML; {getattr(error, 'problem', 'it cannot be parsed')}"
        ) from error
    services = [d for d in documents if isinstance(d, Mapping) and d.get("kind") == "InferenceService"]
    if len(services) != 1:
        raise ServiceFileError(f"{path}: has {len(services)} objects of kind InferenceService; give a file with one")
    spec, metadata = services[0].get("spec"), services[0].get("metadata")
    if not isinstance(spec, Mapping):
        raise ServiceFileError(f"{path}: spec is missing; give the whole object")
    try:
        name = str(metadata["name"]) if isinstance(metadata, Mapping) and "name" in metadata else "service"
        service = Service(name=name, spec=read_spec(spec))
    except UnreadableSpec as error:
        raise ServiceFileError(f"{path}: {error}") from error
    if refused := contradiction(service.spec, service.policy):
        raise ServiceFileError(f"{path}: {refused}")
    return service
