"""The rendered children on a real API server: accepted without a warning, and applied twice the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from real_cluster import Json, RealCluster, wait_for
from tidegate_operator.decide.manifests import Owner, children
from tidegate_operator.decide.pod_template import next_template
from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import InferenceServiceSpec, read_spec
from tidegate_operator.world.calls import CHILDREN

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "crds/examples"
SERVICES = [
    document
    for path in sorted(EXAMPLES.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document["kind"] == "InferenceService"
]
EVERYTHING = {
    "model": {"source": "pvc://models/m.gguf", "servedName": "a/b:c", "maxModelLen": 512},
    "engine": {"kvCacheMemory": "64Mi", "extraArgs": ["--max-body-size=1Mi"]},
    "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1.5", "memory": "1Gi"}},
    "rollout": {"maxSurge": "25%", "maxUnavailable": "10%"},
    "pod": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
                ]
            }
        },
        "topologySpread": [{"topologyKey": "zone"}, {"topologyKey": "kubernetes.io/hostname", "maxSkew": 2}],
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "volumes": [
            {"name": "claim", "mountPath": "/claim", "readOnly": False, "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "config", "mountPath": "/config", "configMap": {"name": "c"}},
            {"name": "secret", "mountPath": "/secret", "secret": {"name": "s"}},
            {
                "name": "room",
                "mountPath": "/room",
                "readOnly": False,
                "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"},
            },
            {"name": "files", "mountPath": "/files", "image": {"reference": "localhost/files:1"}},
        ],
        "env": [
            {"name": "A", "value": ""},
            {"name": "B", "secretKeyRef": {"name": "s", "key": "k"}},
            {"name": "C", "configMapKeyRef": {"name": "c", "key": "k"}},
        ],
    },
}
SPECS = [pytest.param(document["spec"], id=document["metadata"]["name"]) for document in SERVICES]
SPECS.append(pytest.param(EVERYTHING, id="everything that can be asked for"))


@pytest.fixture(scope="module")
def namespace(cluster: RealCluster) -> Iterator[str]:
    """A namespace that admits, and warns of, nothing but restricted pods."""
    name = f"test-{time.time_ns() % 10**10}"
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": level}})
    yield name
    cluster.delete("namespaces", None, name)
    wait_for(f"namespace {name} is gone", lambda: cluster.get("namespaces", None, name) is None, 60)


def apply(cluster: RealCluster, manifest: Json) -> httpx.Response:
    kind, meta = CHILDREN[manifest["kind"]], manifest["metadata"]
    return cluster.http.patch(
        kind.path(meta["namespace"], meta["name"]),
        content=json.dumps(manifest),
        params={"fieldManager": "tidegate-operator", "force": "true", "fieldValidation": "Strict"},
        headers={"Content-Type": "application/apply-patch+yaml"},
    )


def manifests(namespace: str, spec: InferenceServiceSpec, kept: dict[str, str] | None = None) -> tuple[Json, ...]:
    # An owner that does not exist would have the children collected: they are made without one.
    template = next_template("web", spec, "localhost/tidegate/none:1", kept)
    made = children(
        Owner(ServiceKey(namespace, "web"), "none"), spec, template, replicas=0, operator_namespace="tidegate-system"
    )
    for child in made:
        del child["metadata"]["ownerReferences"]
    return made


@pytest.mark.parametrize("asked", SPECS)
def test_children_are_accepted_and_applying_them_again_changes_nothing(
    cluster: RealCluster, namespace: str, asked: dict[str, Any]
) -> None:
    spec = read_spec(asked)
    first = [apply(cluster, manifest) for manifest in manifests(namespace, spec)]
    for answer in first:
        assert answer.is_success, answer.text
        assert "warning" not in answer.headers, answer.headers["warning"]
    (live,) = [answer.json() for answer in first if answer.json()["kind"] == "Deployment"]
    # As the next operator does: the template is read back from the live object.
    again = [apply(cluster, manifest) for manifest in manifests(namespace, spec, live["metadata"]["annotations"])]
    for before, after in zip(first, again, strict=True):
        # The deployment controller writes a status in between, so its version may move; what was asked may not.
        assert after.json()["metadata"].get("generation") == before.json()["metadata"].get("generation")
        assert after.json().get("spec") == before.json().get("spec")
    for answer in first:
        kind = CHILDREN[answer.json()["kind"]]
        assert cluster.http.delete(kind.path(namespace, "web")).is_success
    wait_for(
        "the Deployment is gone", lambda: cluster.http.get(CHILDREN["Deployment"].path(namespace, "web")).is_error, 30
    )
