"""Mode external with a real HPA: it follows what Tidegate wants, the Deployment follows it, and back again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from external_metrics_api import flags, hears, hpa_for, served
from real_cluster import RealCluster, condition, wait_for
from tidegate_lab.explain.account import account
from tidegate_testbed.processes import inside
from tidegate_testbed.programs import Binaries

pytestmark = pytest.mark.cluster

PORT = 18443


@pytest.fixture
def external_metrics(operator: Any, cluster: RealCluster, binaries: Binaries, tmp_path: Path) -> Iterator[None]:
    """The chart's API, answered by the operator under test."""
    operator.end()
    operator.flags = flags(tmp_path, PORT)
    try:
        with served(cluster, binaries, tmp_path, (PORT,), operator.start, operator.tail):
            yield
    finally:
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


def replicas(room: Any) -> tuple[int, int]:
    """Of the service, which the HPA writes, and of the Deployment, which the operator writes."""
    deployment = room.cluster.get("deployments", room.name, "web")
    return room.get("web")["spec"]["replicas"], deployment["spec"]["replicas"]


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
    room.wait("web is Ready", lambda: condition(room.get("web"), "Ready").get("status") == "True", 240)
    # Without a window on the way down, which a test would have to wait out.
    hpa = hpa_for(room.name, "web", maxReplicas=2, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    kubectl = binaries.path("kubectl")
    room.cluster.kubectl(kubectl, "apply", "-f", "-", text=json.dumps(hpa))
    wait_for(
        "the HPA reads the metric", lambda: hears(room.cluster, room.name, "web") == "True", 90, say=lambda: say(room)
    )
    assert replicas(room) == (1, 1)

    with load(room):
        wait_for("the HPA asks for two, and two run", lambda: replicas(room) == (2, 2), 120, say=lambda: say(room))
        wait_for(
            "both are ready", lambda: room.get("web")["status"].get("readyReplicas") == 2, 240, say=lambda: say(room)
        )
    # Nothing is asked for any more, but nobody says so: the number holds.
    room.operator.end(signal.SIGKILL)
    wait_for(
        "the HPA hears nothing", lambda: hears(room.cluster, room.name, "web") == "False", 60, say=lambda: say(room)
    )
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
