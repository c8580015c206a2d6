"""The container `engine`: what it runs, may use and may do, and how its health is asked."""

from __future__ import annotations

from typing import Any

from tidegate_operator.decide.engine_flags import engine_flags
from tidegate_operator.decide.pod_volumes import mounts
from tidegate_operator.resource import EnvVar, InferenceServiceSpec

CONTAINER = "engine"
HTTP_PORT, ADMIN_PORT = 8000, 9000
PRE_STOP_SLEEP_S = 5
"""A pod that is to end goes on answering while endpoints still name it."""

Json = dict[str, Any]


def engine_container(name: str, spec: InferenceServiceSpec, image: str) -> Json:
    """The container, within pod security level restricted."""
    container: Json = {
        "name": CONTAINER,
        "image": spec.engine.image or image,
        "args": engine_flags(name, spec),
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "TRITON_CACHE_DIR", "value": "/tmp/triton"},
            *(_variable(variable) for variable in spec.pod.env),
        ],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        # A model may take as long to load as its rollout may take. Asked every second: ready is seen at once.
        "startupProbe": _probe("/ready", every=1, timeout=2, failures=int(spec.rollout.progress_deadline)),
        # Twice, so that one slow answer of a busy pod does not turn its traffic over to the others.
        "readinessProbe": _probe("/ready", every=2, timeout=4, failures=2),
        # The engine itself judges whether it is stuck; a minute without any answer is a dead process.
        "livenessProbe": _probe("/health", every=10, timeout=10, failures=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SLEEP_S}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # The engine writes its last line itself; a crash before it can is told by the log's end.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts(spec),
    }
    resources = {
        field: amounts
        for field, amounts in (("requests", spec.resources.requests), ("limits", spec.resources.limits))
        if amounts
    }
    return {**container, "resources": resources} if resources else container


def _variable(variable: EnvVar) -> Json:
    if variable.value is not None:
        return {"name": variable.name, "value": variable.value}
    refs = {"configMapKeyRef": variable.config_map_key_ref, "secretKeyRef": variable.secret_key_ref}
    return {"name": variable.name, "valueFrom": {field: ref.model_dump() for field, ref in refs.items() if ref}}


def _probe(path: str, *, every: int, timeout: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "admin", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
