"""The chart's external.metrics.k8s.io, answered by operators under test: processes on the node, and no pods."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from real_cluster import Json, RealCluster, condition, wait_for
from tidegate_testbed.instance import NODE_IP
from tidegate_testbed.programs import Binaries

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "tidegate-system"
API = "v1beta1.external.metrics.k8s.io"


def rendered(binaries: Binaries) -> dict[str, Json]:
    """What the chart makes for external metrics, by kind."""
    done = subprocess.run(
        [binaries.path("helm"), "template", "tidegate", ROOT / "helm/tidegate", "--namespace", NAMESPACE,
         "--set", "image.operator=unused:1,image.engine=unused:1,externalMetrics.enabled=true",
         "--show-only", "templates/external-metrics.yaml"],
        capture_output=True, text=True, check=False, env=os.environ | {"KUBECONFIG": "/dev/null"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {m["kind"]: m for m in yaml.safe_load_all(done.stdout)}


def flags(tls: Path, port: int) -> tuple[str, ...]:
    """What an operator is told in order to serve it."""
    return (
        "--external-metrics-tls", str(tls), "--external-metrics-port", str(port), "--address", NODE_IP,
    )  # fmt: skip


@contextmanager
def served(
    cluster: RealCluster,
    binaries: Binaries,
    tls: Path,
    ports: Sequence[int],
    start: Callable[[], None],
    say: Callable[[], Any],
) -> Iterator[None]:
    """The API's certificate in the folder `tls`, operators started by `start` that answer on `ports`, and the API."""
    made = rendered(binaries)
    for name, data in made["Secret"]["data"].items():
        (tls / name).write_bytes(base64.b64decode(data))
    service = made["Service"]
    del service["spec"]["selector"]
    name = service["metadata"]["name"]
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": slice_name(port), "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
        for port in ports
    ]  # fmt: skip
    start()
    documents = yaml.safe_dump_all([service, *slices, made["APIService"]])
    cluster.kubectl(binaries.path("kubectl"), "apply", "-f", "-", text=documents)
    try:
        wait_for("the API server reaches the operator", lambda: is_available(cluster), 60, say=say)
        yield
    finally:
        cluster.delete("apiservices", None, API)  # one that nobody answers keeps namespaces from being deleted
        cluster.delete("services", NAMESPACE, name)
        for port in ports:
            cluster.delete("endpointslices", NAMESPACE, slice_name(port))


def slice_name(port: int) -> str:
    """Of the slice that sends questions to this port of the node."""
    return f"external-metrics-{port}"


def is_available(cluster: RealCluster) -> bool:
    """Whether the API server gets the list of metrics."""
    return condition(cluster.get("apiservices", None, API), "Available").get("status") == "True"


def hpa_for(namespace: str, service: str, **spec: Any) -> Json:
    """The HPA of the example, for this service; `spec` is laid over its own."""
    hpa: Json
    _, hpa = yaml.safe_load_all((ROOT / "crds/examples/external-hpa.yaml").read_text())
    hpa["metadata"] = {"name": service, "namespace": namespace}
    hpa["spec"]["scaleTargetRef"]["name"] = service
    hpa["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"]["service"] = service
    hpa["spec"] |= spec
    return hpa


def hears(cluster: RealCluster, namespace: str, service: str) -> str:
    """Whether the HPA gets a number: its condition ScalingActive."""
    hpa = cluster.get("horizontalpodautoscalers", namespace, service)
    return str(condition(hpa, "ScalingActive").get("status"))
