"""The service that is measured, as a user would apply it, and the traffic that suits an engine as slow as that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tidegate_operator.resource import read_spec

from tidegate_lab.demo.objects import MODEL_FILE, NAMESPACE, Manifest
from tidegate_lab.traffic.named import named
from tidegate_lab.traffic.shape import at_times_the_rate, cut
from tidegate_lab.traffic.synthetic import Lengths, Stage, on_off, stages
from tidegate_lab.traffic.trace import Trace
from tidegate_lab.what_if.service_file import Service

NAME = "measured"
SECONDS = 600.0
SHORTEST_PROMPT = 48
"""The chat template and the closing question alone are 40 tokens."""
LONGEST_PROMPT, LONGEST_ANSWER = 400, 100
"""At half a processor a prompt of 400 tokens takes a second."""


def manifest(cpu: str, replicas: int | None, most: int) -> Manifest:
    """So many replicas for good, or from 1 to `most` as the operator decides; each with this much of a processor."""
    spec: dict[str, Any] = {
        # Without prefix caching, which the simulator has not; every prompt begins with the same template.
        "model": {"source": f"pvc://models/{MODEL_FILE}", "maxModelLen": 1024},
        # A step of 128 tokens takes a third of a second here, one of the default 512 more than any target for TPOT.
        "engine": {
            "maxRunningRequests": 8,
            "chunkedPrefillTokens": 128,
            "kvCacheMemory": "256Mi",
            "prefixCaching": False,
        },
        "resources": {"requests": {"cpu": cpu, "memory": "700Mi"}, "limits": {"cpu": cpu, "memory": "1.5Gi"}},
        "drain": {"timeout": "2m"},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    else:
        down = {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
        spec["scaling"] = {
            "minReplicas": 1,
            "maxReplicas": most,
            "targets": {"ttft": {"p99": "3s"}, "tpot": {"p99": "300ms"}},
            # The default window of 5 minutes is half of the traffic.
            "behavior": {"scaleDown": down},
        }
    return {
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": spec,
    }


def service(cpu: str, most: int) -> Service:
    """The scaled one, as `tidegate simulate` would read it from a file."""
    return Service(name=NAME, spec=read_spec(manifest(cpu, None, most)["spec"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Ten minutes of a trace, its lengths and its rate cut to what one to three small replicas serve."""

    make: Callable[[], Trace]
    length: float
    """Times so many tokens."""
    rate: float
    """Times so many users."""

    def trace(self) -> Trace:
        """The requests as they are sent, and simulated."""
        whole = self.make()
        part = at_times_the_rate(cut(whole, 0.0, min(SECONDS, whole.seconds)), self.rate)
        return replace(
            part,
            prompt=np.clip(np.rint(part.prompt * self.length), SHORTEST_PROMPT, LONGEST_PROMPT).astype(np.int32),
            output=np.clip(np.rint(part.output * self.length), 2, LONGEST_ANSWER).astype(np.int32),
        )


def _conversation() -> Lengths:
    return Lengths.of(named("azure-conv"))


TRAFFIC = {
    # Not azure-code: answers of three tokens, in bursts of ten times the mean rate that no such replica can follow.
    "azure-conv": Traffic(make=lambda: named("azure-conv"), length=0.1, rate=0.5),
    "aibrix-up-down": Traffic(make=lambda: named("aibrix-up-down"), length=0.3, rate=0.6),
    "on-off": Traffic(
        make=lambda: on_off("on-off", Stage(4.0, 120), Stage(0.8, 180), 2, _conversation(), seed=4), length=0.1, rate=1
    ),
    "step-up": Traffic(
        make=lambda: stages("step-up", [Stage(0.8, 180), Stage(4.0, 420)], _conversation(), seed=2), length=0.1, rate=1
    ),
}
