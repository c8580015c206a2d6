"""The files of an engine pod: the model, room to write, and what the user adds."""

from __future__ import annotations

from typing import Any

from tidegate_operator.decide.engine_flags import DRAFT_MODELS, MODELS, draft_claim
from tidegate_operator.resource import InferenceServiceSpec, Volume, parse_source

Json = dict[str, Any]


def volumes(spec: InferenceServiceSpec) -> list[Json]:
    """The root is read-only: /tmp holds HOME and the Triton cache, /dev/shm what ranks share."""
    own: list[Json] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    for name, claim in (("models", parse_source(spec.model.source).claim), ("draft-models", draft_claim(spec))):
        if claim is not None:
            own.append({"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    return [*own, *(_volume(volume) for volume in spec.pod.volumes)]


def mounts(spec: InferenceServiceSpec) -> list[Json]:
    """Where they are."""
    own: list[Json] = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}]
    if parse_source(spec.model.source).claim is not None:
        own.append({"name": "models", "mountPath": MODELS, "readOnly": True})
    if draft_claim(spec) is not None:
        own.append({"name": "draft-models", "mountPath": DRAFT_MODELS, "readOnly": True})
    return [*own, *(_mount(volume) for volume in spec.pod.volumes)]


def _mount(volume: Volume) -> Json:
    mount: Json = {"name": volume.name, "mountPath": volume.mount_path}
    return {**mount, "readOnly": True} if volume.read_only else mount


def _volume(volume: Volume) -> Json:
    source: Json = {}
    if volume.persistent_volume_claim:
        source["persistentVolumeClaim"] = {"claimName": volume.persistent_volume_claim.claim_name}
    if volume.config_map:
        source["configMap"] = {"name": volume.config_map.name}
    if volume.secret:
        source["secret"] = {"secretName": volume.secret.name}
    if volume.empty_dir:
        source["emptyDir"] = {k: v for k, v in volume.empty_dir.model_dump(by_alias=True).items() if v}
    if volume.image:
        source["image"] = volume.image.model_dump(by_alias=True)
    return {"name": volume.name, **source}
