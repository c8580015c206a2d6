"""Asking the API server whether it would accept an InferenceService, and in which words it refuses one."""

from __future__ import annotations

from typing import Any

import pytest
from real_cluster import Json, RealCluster

SOURCE = {"source": "pvc://models/m.gguf"}


def refusal(cluster: RealCluster, spec: Json, name: str = "web") -> str:
    """The API server's words about a create with strict field validation; empty where it would accept it."""
    body = {
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    path = cluster.path("inferenceservices", "default")
    answer = cluster.http.post(path, json=body, params={"dryRun": "All", "fieldValidation": "Strict"})
    if answer.status_code not in (400, 422):
        assert answer.status_code == 201, answer.text
        return ""
    message: str = answer.json()["message"]
    return message


def bad(sentence: str, message: str, **spec: Any) -> Any:
    return pytest.param({"model": SOURCE} | spec, message, id=sentence)


def scaling(**fields: Any) -> Json:
    return {"maxReplicas": 3} | fields
