"""Mode external with a real HPA: it follows what Tidegate wants, the Deployment follows it, and back again."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_cluster import Json, RealCluster, condition, wait_for
from tidegate_lab.explain.account import account
from tidegate_testbed.instance import NODE_IP
from tidegate_testbed.processes import inside
from tidegate_testbed.programs import Binaries

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "tidegate-system"
API = "v1beta1.external.metrics.k8s.io"
PORT = 18443


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


@pytest.fixture
def external_metrics(operator: Any, cluster: RealCluster, binaries: Binaries, tmp_path: Path) -> Iterator[None]:
    """The chart's API, answered by the operator under test, which is a process on the node and no pod."""
    made = rendered(binaries)
    for name, data in made["Secret"]["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(data))
    service = made["Service"]
    del service["spec"]["selector"]
    service["spec"]["ports"][0]["targetPort"] = PORT
    name = service["metadata"]["name"]
    addresses = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
    }
    operator.end()
    operator.flags = ("--external-metrics-tls", str(tmp_path), "--external-metrics-port", str(PORT))
    operator.start()
    documents = yaml.safe_dump_all([service, addresses, made["APIService"]])
    cluster.kubectl(binaries.path("kubectl"), "apply", "-f", "-", text=documents)
    try:
        wait_for(
            "the API server reaches the operator",
            lambda: condition(cluster.get("apiservices", None, API), "Available").get("status") == "True",
            60,
            say=lambda: (condition(cluster.get("apiservices", None, API), "Available"), operator.tail()),
        )
        yield
    finally:
        cluster.delete("apiservices", None, API)  # one that nobody answers keeps namespaces from being deleted
        cluster.delete("services", NAMESPACE, name)
        cluster.delete("endpointslices", NAMESPACE, name)
        operator.end()
        operator.flags = ()


LOAD = """
import json, sys, threading, urllib.request
body = json.dumps({"model": "web", "prompt": "Once upon a time", "max_tokens": 48, "ignore_eos": True}).encode()
def ask():
    while True:
        request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=120).read()
for _ in range(12):
    threading.Thread(target=ask).start()
"""


@contextmanager
def load(room: Any) -> Iterator[None]:
    """Twelve clients that each ask again as soon as they are answered."""
    address = room.cluster.get("services", room.name, "web")["spec"]["clusterIP"]
    url = f"http://{address}/v1/completions"
    command = [*inside(room.testbed), sys.executable, "-c", LOAD, url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as clients:
        try:
            yield
            assert clients.poll() is None, f"the clients ended: {clients.stderr.read() if clients.stderr else ''}"
        finally:
            clients.kill()


def the_example(room: Any) -> Json:
    """The HPA of the example, for `web`, and without a window on the way down, which a test would have to wait out."""
    hpa: Json
    _, hpa = yaml.safe_load_all((ROOT / "crds/examples/external-hpa.yaml").read_text())
    hpa["metadata"] = {"name": "web", "namespace": room.name}
    hpa["spec"]["scaleTargetRef"]["name"] = "web"
    hpa["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"]["service"] = "web"
    hpa["spec"] |= {"maxReplicas": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
    return hpa


def replicas(room: Any) -> tuple[int, int]:
    """Of the service, which the HPA writes, and of the Deployment, which the operator writes."""
    deployment = room.cluster.get("deployments", room.name, "web")
    return room.get("web")["spec"]["replicas"], deployment["spec"]["replicas"]


def hears(room: Any) -> str:
    """Whether the HPA gets a number: its condition ScalingActive."""
    hpa = room.cluster.get("horizontalpodautoscalers", room.name, "web")
    return str(condition(hpa, "ScalingActive").get("status"))


def say(room: Any) -> str:
    hpa = room.cluster.get("horizontalpodautoscalers", room.name, "web") or {}
    scaling = room.get("web").get("status", {}).get("scaling", {})
    shown = {key: scaling.get(key) for key in ("desired", "recommended", "message", "dataState", "terms")}
    return f"{replicas(room)}; HPA: {json.dumps(hpa.get('status'))}; status: {json.dumps(shown)}"


@pytest.mark.usefixtures("engine_image", "external_metrics")
def test_an_hpa_follows_what_tidegate_wants_the_deployment_follows_the_hpa_and_nobody_fights(
    room: Any, binaries: Binaries
) -> None:
    room.service("web", replicas=1, scaling={"mode": "external"}, engine={"maxRunningRequests": 2})
    room.wait("web is Ready", lambda: condition(room.get("web"), "Ready").get("status") == "True", 90)
    kubectl = binaries.path("kubectl")
    room.cluster.kubectl(kubectl, "apply", "-f", "-", text=json.dumps(the_example(room)))
    wait_for("the HPA reads the metric", lambda: hears(room) == "True", 30, say=lambda: say(room))
    assert replicas(room) == (1, 1)

    with load(room):
        wait_for("the HPA asks for two, and two run", lambda: replicas(room) == (2, 2), 60, say=lambda: say(room))
        wait_for(
            "both are ready", lambda: room.get("web")["status"].get("readyReplicas") == 2, 90, say=lambda: say(room)
        )
    # Nothing is asked for any more, but nobody says so: the number holds.
    room.operator.end(signal.SIGKILL)
    wait_for("the HPA hears nothing", lambda: hears(room) == "False", 60, say=lambda: say(room))
    assert replicas(room) == (2, 2)
    room.operator.start()
    wait_for("back to one", lambda: replicas(room) == (1, 1), 120, say=lambda: say(room))

    service = room.get("web")
    writers = {
        entry["manager"]
        for entry in service["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }
    assert "tidegate-operator" not in writers, "the operator never writes spec"
    moves = [(c["before"], c["desired"]) for c in service["status"]["scaling"]["history"]]
    assert moves[:2] == [(2, 1), (1, 2)], "one step up and one down"
    assert len(moves) == 3, "and the first look"
    assert service["metadata"]["generation"] == 3, "created, up, down: nobody wrote the number in between"
    told = "\n".join(account(service, time.time()))
    assert f"{room.name}/web: 1 replicas wanted, " in told
    assert "(mode external)" in told
    assert "2 -> 1" in told
