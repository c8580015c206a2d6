"""The engine pods' template, and when it is made anew.

A template is kept with the hash of the spec it came from and used as it is until that spec changes, so that a new
operator, or a new default image, restarts no model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate_operator.decide.engine_container import engine_container
from tidegate_operator.decide.pod_volumes import volumes
from tidegate_operator.resource import InferenceServiceSpec, PodOverrides

SERVICE_LABEL = "tidegate.dev/service"
TEMPLATE_HASH = "tidegate.dev/template-hash"
TEMPLATE = "tidegate.dev/template"
USER = 65532
GRACE_BEYOND_DRAIN_S = 30
"""preStop sleep 5, waiting for endpoints 5, and 20 to end the process."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A rendered pod template, and the hash of the spec it came from."""

    spec_hash: str
    body: Json

    def annotations(self) -> dict[str, str]:
        """How a Deployment keeps it."""
        text = json.dumps(self.body, sort_keys=True, separators=(",", ":"))
        return {TEMPLATE_HASH: self.spec_hash, TEMPLATE: text}


def next_template(name: str, spec: InferenceServiceSpec, image: str, kept: Mapping[str, str] | None) -> Template:
    """The template to apply: the kept one while its spec is the present one, else a new one.

    `kept` are the annotations of the live Deployment, `image` is the engine for a spec that names none.
    """
    wanted = spec_hash(spec)
    return _kept(kept or {}, wanted) or Template(wanted, _render(name, spec, image, wanted))


def spec_hash(spec: InferenceServiceSpec) -> str:
    """Of what shapes a pod. Defaults are left out, so that a field a later version adds changes no hash."""
    shaping = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        include={
            "model": True,
            "engine": True,
            "resources": True,
            "drain": True,
            "pod": True,
            "rollout": {"progress_deadline"},
        },
    )
    # A default may be said or left out, alone in its parent or not: an empty parent is no difference.
    said = {field: value for field, value in shaping.items() if value != {}}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def labels(name: str) -> dict[str, str]:
    """On every child and every pod."""
    return {
        "app.kubernetes.io/name": "tidegate-engine",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "tidegate",
        SERVICE_LABEL: name,
    }


def selector(name: str) -> dict[str, str]:
    """Selects the pods; a Deployment's can never be changed."""
    return {SERVICE_LABEL: name}


def _kept(annotations: Mapping[str, str], wanted: str) -> Template | None:
    if annotations.get(TEMPLATE_HASH) != wanted:
        return None
    try:
        body = json.loads(annotations.get(TEMPLATE, ""))
    except ValueError:
        return None
    return Template(wanted, body) if isinstance(body, dict) and "spec" in body else None


def _render(name: str, spec: InferenceServiceSpec, image: str, spec_hash: str) -> Json:
    pod = spec.pod
    return {
        "metadata": {
            "labels": {**pod.labels, **labels(name)},
            "annotations": {**pod.annotations, TEMPLATE_HASH: spec_hash},
        },
        "spec": {
            "serviceAccountName": name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": int(spec.drain.timeout) + GRACE_BEYOND_DRAIN_S,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [engine_container(name, spec, image)],
            "volumes": volumes(spec),
            **_placement(name, pod),
        },
    }


def _placement(name: str, pod: PodOverrides) -> Json:
    """Only what was asked for: an empty field would be owned for nothing."""
    asked: Json = {
        "nodeSelector": pod.node_selector,
        "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in pod.tolerations],
        "affinity": pod.affinity,
        "topologySpreadConstraints": [
            {
                **spread.model_dump(by_alias=True),
                "labelSelector": {"matchLabels": selector(name)},
                # Without it the pods of the last rollout, which are about to go, would weigh as much as the new ones.
                "matchLabelKeys": ["pod-template-hash"],
            }
            for spread in pod.topology_spread
        ],
        "priorityClassName": pod.priority_class_name,
    }
    return {field: value for field, value in asked.items() if value}
