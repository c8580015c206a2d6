"""What the demo puts into the cluster beside the service itself, as plain manifests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

NAMESPACE = "demo"
CLAIM = "models"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
LOAD_PACKAGE = Path(__file__).parent.parent / "load"
SECURE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def namespace() -> Manifest:
    """Held to the strictest of Kubernetes' pod security levels, so that the demo proves the engine's pods meet it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def volume_of_folder(folder: Path) -> list[Manifest]:
    """A claim of the node's own folder, read only: the testbed's node is this machine."""
    name = f"{NAMESPACE}-{CLAIM}"
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
        "hostPath": {"path": str(folder), "type": "Directory"},
    }
    claim = _claim({"accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": name})
    return [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume}, claim]


def claim_to_fill() -> Manifest:
    """A claim of the cluster's default storage class; `filling_pod` puts the model there."""
    return _claim({"accessModes": ["ReadWriteOnce"]})


def filling_pod(image: str) -> Manifest:
    """A pod that waits with the claim mounted, for `kubectl exec` to write the model through."""
    container = {
        "name": "fill",
        "image": image,
        "command": ["sleep", "900"],
        "securityContext": SECURE,
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"fsGroup": 65532},
        "containers": [container],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "fill-models", "namespace": NAMESPACE},
        "spec": spec,
    }


def load_code() -> Manifest:
    """The load generator's sources: a handful of modules that need only httpx, which the operator's image has."""
    data = {path.name: path.read_text() for path in sorted(LOAD_PACKAGE.glob("*.py"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "load", "namespace": NAMESPACE}, "data": data}


def load_job(name: str, image: str, flags: Mapping[str, str | float]) -> Manifest:
    """A job that sends one load from inside the cluster, where the Service answers."""
    arguments = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    container = {
        "name": "load",
        "image": image,
        "command": ["python3", "-m", "tidegate_lab.load", *arguments, "--progress", "--output", "json"],
        "env": [{"name": "PYTHONPATH", "value": "/lab"}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": SECURE,
        "volumeMounts": [{"name": "code", "mountPath": "/lab/tidegate_lab/load"}],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "code", "configMap": {"name": "load"}}],
    }
    spec = {"backoffLimit": 0, "ttlSecondsAfterFinished": 600, "template": {"spec": pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def _claim(spec: Manifest) -> Manifest:
    wanted = {"resources": {"requests": {"storage": "1Gi"}}} | spec
    metadata = {"name": CLAIM, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}
