"""One operator acts at a time, and hands over quickly."""

from __future__ import annotations

import dataclasses
import signal
from typing import Any

import pytest
from real_cluster import RealCluster, wait_for

pytestmark = pytest.mark.cluster
LEASE = ("leases", "tidegate-system", "tidegate-operator")


def holder(cluster: RealCluster) -> str:
    lease = cluster.get(*LEASE)
    return str((lease or {}).get("spec", {}).get("holderIdentity", ""))


def test_an_operator_that_is_told_to_end_hands_over_at_once(cluster: RealCluster, operator: Any, tmp_path: Any) -> None:
    wait_for("the first leads", lambda: holder(cluster) == operator.identity, 20)
    second = dataclasses.replace(operator, log=tmp_path / "log", process=None, identity="second", metrics_port=18082)
    second.start()
    try:
        wait_for("the second stands by", lambda: "waits for lease" in second.log.read_text(), 20)
        assert operator.end(signal.SIGTERM) == 0
        wait_for("the second leads", lambda: holder(cluster) == "second", 6, say=second.tail)
        assert second.end(signal.SIGTERM) == 0
    finally:
        second.stop()


def test_an_operator_that_lost_its_lease_ends_so_that_two_never_act(cluster: RealCluster, operator: Any) -> None:
    wait_for("it leads", lambda: holder(cluster) == operator.identity, 20)
    cluster.merge(*LEASE, {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}})
    process = operator.process
    assert process.wait(timeout=30) == 3, operator.tail()
    operator.start()
    wait_for("it leads again, once the thief's time is over", lambda: holder(cluster) == operator.identity, 30)
