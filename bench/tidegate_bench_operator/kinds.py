"""Bodies of the API objects that the stand-in makes, as far as the operator reads them."""

from __future__ import annotations

import time
from typing import Any

Body = dict[str, Any]

GROUPS = {
    "tidegate.dev/v1alpha1": {"inferenceservices": "InferenceService"},
    "apps/v1": {"deployments": "Deployment"},
    "v1": {"namespaces": "Namespace", "pods": "Pod", "services": "Service", "serviceaccounts": "ServiceAccount"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "discovery.k8s.io/v1": {"endpointslices": "EndpointSlice"},
    "events.k8s.io/v1": {"events": "Event"},
    "coordination.k8s.io/v1": {"leases": "Lease"},
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
}
"""What discovery tells, by API version: plural and kind."""


def stamp(seconds: float | None = None) -> str:
    """A time as the API server writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if seconds is None else seconds))


def service(name: str, replicas: int) -> Body:
    """An InferenceService that scales by itself, and whose load fits the replicas it has."""
    return {
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"namespace": "bench", "name": name, "creationTimestamp": stamp(), "generation": 1},
        "spec": {
            "model": {"source": "pvc://models/model.gguf"},
            "engine": {"maxRunningRequests": 32},
            "scaling": {
                "minReplicas": replicas,
                "maxReplicas": replicas + 4,
                "targets": {"queueDepth": 2, "ttft": {"p99": "2s"}, "tpot": {"p99": "100ms"}},
            },
            "cost": {"perReplicaHour": 2.5},
        },
    }


def pod(service_name: str, uid: str, ip: str, template_hash: str) -> Body:
    """An engine pod that is ready."""
    since = stamp(time.time() - 600)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": since}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "bench",
            "name": f"{service_name}-1-{uid}",
            "uid": uid,
            "creationTimestamp": since,
            "labels": {"tidegate.dev/service": service_name, "pod-template-hash": "1"},
            "annotations": {"tidegate.dev/template-hash": template_hash},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{service_name}-1",
                    "uid": f"rs-{service_name}",
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "engine", "image": "engine:1"}]},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "startTime": since,
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": "engine",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": since}},
                    "lastState": {},
                }
            ],
        },
    }


def endpoint_slice(service_name: str, pods: list[tuple[str, str]]) -> Body:
    """The slice that lists these pods (UID, address) as ready."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "bench",
            "name": f"{service_name}-abc",
            "labels": {"tidegate.dev/service": service_name},
            "creationTimestamp": stamp(),
        },
        "endpoints": [
            {"addresses": [ip], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": uid}}
            for uid, ip in pods
        ],
    }


def deployment_status(generation: int, replicas: int) -> Body:
    """The status of a Deployment all of whose pods are there."""
    return {
        "observedGeneration": generation,
        "replicas": replicas,
        "readyReplicas": replicas,
        "updatedReplicas": replicas,
        "availableReplicas": replicas,
        "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "done"}
        ],
    }
