"""Two operators, and an HPA that hears the number from either; the one that leads dies, and nothing is scaled."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from external_metrics_api import NAMESPACE, flags, hears, hpa_for, is_available, served, slice_name
from real_cluster import RealCluster, wait_for
from tidegate_testbed.instance import NODE_IP
from tidegate_testbed.processes import inside
from tidegate_testbed.programs import Binaries

pytestmark = pytest.mark.cluster

FIRST, SECOND = 18443, 18444
LEASE = ("leases", NAMESPACE, "tidegate-operator")


@pytest.fixture
def second(operator: Any, cluster: RealCluster, binaries: Binaries, tmp_path: Path) -> Iterator[Any]:
    """One that stands by, while `operator` leads; both serve external metrics."""
    other = dataclasses.replace(
        operator, log=tmp_path / "log", process=None, identity="second", metrics_port=18082,
        flags=flags(tmp_path, SECOND),
    )  # fmt: skip
    operator.end()
    operator.flags = flags(tmp_path, FIRST)

    def start() -> None:
        operator.start()
        wait_for("the first leads", lambda: holder(cluster) == operator.identity, 60, say=operator.tail)
        other.start()
        wait_for("the second stands by", lambda: "waits for lease" in other.log.read_text(), 60, say=other.tail)

    try:
        with served(cluster, binaries, tmp_path, (FIRST, SECOND), start, other.tail):
            yield other
    finally:
        other.stop()
        operator.stop()
        operator.flags = ()


def holder(cluster: RealCluster) -> str:
    return str((cluster.get(*LEASE) or {}).get("spec", {}).get("holderIdentity", ""))


def says(room: Any, port: int) -> str:
    """The number that the operator on this port gives, or why it gives none."""
    path = f"apis/external.metrics.k8s.io/v1beta1/namespaces/{room.name}/tidegate_service_desired_replicas"
    url = f"https://{NODE_IP}:{port}/{path}?labelSelector=service=web"
    done = subprocess.run(
        [*inside(room.testbed), "curl", "--silent", "--insecure", "--max-time", "10", url],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    answer = json.loads(done.stdout or '{"message": "nobody listens"}')
    return str(answer.get("message") or [item["value"] for item in answer["items"]])


def test_an_hpa_hears_the_number_from_either_and_again_once_the_lease_of_a_dead_leader_is_over(
    room: Any, second: Any, binaries: Binaries
) -> None:
    # Two replicas whose image is not there: nothing comes, so that 2 is the number until somebody scales.
    room.service("web", replicas=2, scaling={"mode": "external"}, engine={"image": "localhost/none:1"})
    hpa = json.dumps(hpa_for(room.name, "web", behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}))
    room.cluster.kubectl(binaries.path("kubectl"), "apply", "-f", "-", text=hpa)
    room.wait("the leader knows the number", lambda: says(room, FIRST) == "['2000m']", 60)
    assert says(room, SECOND) == "['2000m']"
    room.wait("the HPA reads it", lambda: hears(room.cluster, room.name, "web") == "True", 90)

    room.operator.end(signal.SIGKILL)
    room.cluster.delete("endpointslices", NAMESPACE, slice_name(FIRST))  # as it is of a pod that is not ready
    meanwhile = []

    def again() -> bool:
        said = says(room, SECOND)
        meanwhile.append(said)
        return said == "['2000m']"

    # The lease's 6 s, a retry of one, and the first decisions.
    wait_for("the second gives the number", again, 45, say=second.tail)
    assert holder(room.cluster) == "second"
    assert all(said == "[]" or "an HPA holds meanwhile" in said for said in meanwhile[:-1]), meanwhile
    assert is_available(room.cluster), "the API was there all the time"
    wait_for("the HPA reads it again", lambda: hears(room.cluster, room.name, "web") == "True", 60, say=second.tail)
    service = room.get("web")
    assert (service["spec"]["replicas"], service["metadata"]["generation"]) == (2, 1), "nobody wrote the number"
