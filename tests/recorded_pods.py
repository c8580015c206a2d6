"""Statuses of engine pods as a kubelet 1.37 and its scheduler write them, shortened to what is read."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]

SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T06:00:01Z"}
NOT_READY = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-30T06:00:01Z"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T06:00:21Z"}


def pod(status: Json, **meta: Any) -> Json:
    """A pod of service `web`'s Deployment in namespace `ns` with this status."""
    return {
        "metadata": {
            "name": "web-7d4b9c-abcde",
            "namespace": "ns",
            "uid": "p1",
            "resourceVersion": "100",
            "creationTimestamp": "2026-11-30T06:00:00Z",
            "labels": {"tidegate.dev/service": "web", "pod-template-hash": "7d4b9c"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "rs", "controller": True}],
            **copy.deepcopy(meta),
        },
        "status": copy.deepcopy(status),
    }


def engine(state: Json, last: Json | None = None, restarts: int = 0) -> Json:
    """The status of the container `engine`, after a sidecar's."""
    return {
        "containerStatuses": [
            {"name": "sidecar", "state": {"running": {}}, "lastState": {}, "restartCount": 0},
            {"name": "engine", "state": state, "lastState": last or {}, "restartCount": restarts},
        ]
    }


RUNNING = {"running": {"startedAt": "2026-11-30T06:00:03Z"}}
MODEL_MISSING = {
    "terminated": {
        "exitCode": 3,
        "reason": "Error",
        "message": "loading\nmodel: /models/nope.gguf does not exist; check spec.model.source\n",
        "startedAt": "2026-11-30T06:00:03Z",
        "finishedAt": "2026-11-30T06:00:05Z",
    }
}

CREATING = {"phase": "Pending", "conditions": [SCHEDULED, NOT_READY], "podIP": None} | engine(
    {"waiting": {"reason": "ContainerCreating"}}
)
JUST_MADE: Json = {"phase": "Pending"}
STARTING = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, NOT_READY]} | engine(RUNNING)
SERVING = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, READY]} | engine(RUNNING)
SERVING_AFTER_A_CRASH = SERVING | engine(RUNNING, MODEL_MISSING, restarts=1)
UNSCHEDULABLE: Json = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available.",
            "lastTransitionTime": "2026-11-30T06:00:01Z",
        }
    ],
}
NO_IMAGE = {"phase": "Pending", "conditions": [SCHEDULED, NOT_READY]} | engine(
    {
        "waiting": {
            "reason": "ErrImagePull",
            "message": 'failed to pull and unpack image "localhost/tidegate/none:1": failed to resolve reference',
        }
    }
)
BACKING_OFF = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, NOT_READY]} | engine(
    {
        "waiting": {
            "reason": "CrashLoopBackOff",
            "message": "back-off 10s restarting failed container=engine pod=web-7d4b9c-abcde_ns(p1)",
        }
    },
    MODEL_MISSING,
    restarts=2,
)
JUST_CRASHED = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, NOT_READY]} | engine(MODEL_MISSING)
STARTED_AGAIN = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, NOT_READY]} | engine(
    RUNNING, MODEL_MISSING, restarts=1
)
KILLED_FOR_MEMORY = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, NOT_READY]} | engine(
    {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-30T06:00:09Z"}}
)
ENDED_WELL = {"phase": "Running", "podIP": "10.88.0.7", "conditions": [SCHEDULED, NOT_READY]} | engine(
    {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-11-30T06:00:09Z"}}
)
EVICTED: Json = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: ephemeral-storage.",
    "startTime": "2026-11-30T06:00:01Z",
}
