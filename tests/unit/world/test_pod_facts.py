"""From recorded pod statuses to facts: one phase, one reason, the engine's own last line."""

from __future__ import annotations

from typing import Any

import pytest
import recorded_pods as r
from tidegate_operator.observed import ContainerFailure, Phase
from tidegate_operator.world.pods import one_line, read_pod

LINE = "model: /models/nope.gguf does not exist; check spec.model.source"
PULL = 'failed to pull and unpack image "localhost/tidegate/none:1": failed to resolve reference'
DELETED = {"deletionTimestamp": "2026-11-30T06:01:00Z"}


@pytest.mark.parametrize(
    ("status", "meta", "phase", "failure"),
    [
        pytest.param(r.JUST_MADE, {}, Phase.PENDING, None, id="a pod nobody has looked at yet is pending"),
        pytest.param(r.CREATING, {}, Phase.PENDING, None, id="a container being created is pending"),
        pytest.param(r.UNSCHEDULABLE, {}, Phase.PENDING, None, id="a pod without a node is pending"),
        pytest.param(r.STARTING, {}, Phase.STARTING, None, id="a running container that is not ready is starting"),
        pytest.param(r.SERVING, {}, Phase.READY, None, id="a ready pod is ready"),
        pytest.param(r.SERVING_AFTER_A_CRASH, {}, Phase.READY, None, id="a ready pod's old crash is no failure now"),
        pytest.param(r.SERVING, DELETED, Phase.DRAINING, None, id="a ready pod being deleted is draining"),
        pytest.param(
            r.NO_IMAGE,
            {},
            Phase.FAILED,
            ContainerFailure(reason="ErrImagePull", message=PULL),
            id="an image that cannot be pulled is a failure in the kubelet's words",
        ),
        pytest.param(
            r.BACKING_OFF,
            {},
            Phase.FAILED,
            ContainerFailure(reason="CrashLoopBackOff", message=LINE, exit_code=3),
            id="a crash loop is told in the engine's last line, not the kubelet's",
        ),
        pytest.param(
            r.JUST_CRASHED,
            {},
            Phase.FAILED,
            ContainerFailure(reason="Error", message=LINE, exit_code=3),
            id="a container that just ended badly has failed",
        ),
        pytest.param(
            r.STARTED_AGAIN,
            {},
            Phase.STARTING,
            ContainerFailure(reason="Error", message=LINE, exit_code=3),
            id="a container started again after a crash is starting, and its failure is kept",
        ),
        pytest.param(
            r.KILLED_FOR_MEMORY,
            {},
            Phase.FAILED,
            ContainerFailure(reason="OOMKilled", exit_code=137),
            id="a container killed for memory has failed",
        ),
        pytest.param(
            r.ENDED_WELL, {}, Phase.PENDING, None, id="a container that ended well is about to be started again"
        ),
    ],
)
def test_phase_and_failure(
    status: dict[str, Any], meta: dict[str, Any], phase: Phase, failure: ContainerFailure | None
) -> None:
    record = read_pod(r.pod(status, **meta))
    assert record is not None
    assert record.facts is not None
    assert (record.facts.phase, record.facts.failure) == (phase, failure)


def test_the_schedulers_words_are_kept() -> None:
    record = read_pod(r.pod(r.UNSCHEDULABLE))
    assert record is not None
    assert record.facts is not None
    assert (record.facts.unschedulable or "").startswith("0/1 nodes are available: 1 Insufficient cpu")
    assert record.facts.scheduled_at is None


def test_an_evicted_pod_is_no_replica_but_its_reason_is_kept() -> None:
    record = read_pod(r.pod(r.EVICTED))
    assert record is not None
    assert record.facts is None
    assert [t.failure.reason for t in record.terminations] == ["Evicted"]


def test_times_are_seconds_since_the_epoch() -> None:
    record = read_pod(r.pod(r.SERVING))
    assert record is not None
    assert record.facts is not None
    assert record.facts.scheduled_at == record.facts.created_at + 1
    assert record.facts.ready_at == record.facts.created_at + 21


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="a pod made by hand with our label"),
        pytest.param(
            [{"kind": "ReplicaSet", "name": "other-7d4b9c", "controller": True}],
            id="another Deployment's pod with our label",
        ),
    ],
)
def test_a_pod_that_our_deployment_did_not_make_is_no_replica(owners: list[dict[str, Any]]) -> None:
    assert read_pod(r.pod(r.SERVING, ownerReferences=owners)) is None


def test_a_cost_that_is_no_number_is_no_cost() -> None:
    for text, cost in (("-5", -5), ("7", 7), ("high", None)):
        record = read_pod(r.pod(r.SERVING, annotations={"controller.kubernetes.io/pod-deletion-cost": text}))
        assert record is not None
        assert record.facts is not None
        assert record.facts.deletion_cost == cost


def test_a_termination_message_is_one_bounded_line() -> None:
    assert one_line("first\n\n  last \n\n") == "last"
    assert one_line(None) == ""
    assert len(one_line("x" * 5000)) == 1024
