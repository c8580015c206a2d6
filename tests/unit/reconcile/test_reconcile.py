"""Looks at one service over an API server in memory: what is written, what is said, and what is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from answering_pods import always
from in_memory_api import InMemoryApi
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.errors import RetryLater, Stall
from tidegate_operator.observed import ServiceKey
from tidegate_operator.pace import Pace
from tidegate_operator.reconcile import Kept, Reconciler
from tidegate_operator.resource import InferenceServiceStatus
from tidegate_operator.world.calls import CHILDREN, CLUSTER_CALLS, WATCHED, Kind
from tidegate_operator.world.cluster import Cluster
from tidegate_operator.world.scrape import Scraper
from tidegate_operator.world.view import View

WEB = ServiceKey("ns", "web")
SPEC: dict[str, Any] = {"model": {"source": "pvc://models/m.gguf"}}
AUTO = {"scaling": {"minReplicas": 1, "maxReplicas": 5}}
LOAD = (
    b'{"version": 1, "boot": "b1", "state": "ready", "uptime_s": 900, "slots": 32, "running": 0, "waiting": 0,'
    b' "counters": {"received": 0, "finished": 0}}'
)


class Operator:
    """One operator process; `again` is the next one, over the same cluster."""

    def __init__(self, api: InMemoryApi, image: str = "engine:1", now: float = 1_800_000_000.0) -> None:
        self.api, self.now = api, now
        scraper = Scraper(always(LOAD), clock=lambda: self.now)
        self.view = View(api, scraper, clock=lambda: self.now)
        self.cluster = Cluster(api, self.view, "operator-1", clock=lambda: self.now)
        self.moves: list[str] = []
        self.shown: dict[ServiceKey, InferenceServiceStatus | None] = {}
        self.pace = Pace(2.0)
        self.reconciler = Reconciler(
            cluster=self.cluster,
            engine_image=image,
            operator_namespace="tidegate-system",
            clock=lambda: self.now,
            scaled=self.moves.append,
            shown=self.shown.__setitem__,
            pace=self.pace,
        )

    def again(self, **more: Any) -> Operator:
        return Operator(self.api, now=self.now + 5, **more)

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.view.refresh()
            await self.view.ask(WEB)
            await self.reconciler.reconcile(WEB)
            self.now += 2


def with_service(**spec: Any) -> Operator:
    api = InMemoryApi()
    body = {"metadata": {"name": "web", "namespace": "ns"}, "spec": copy.deepcopy(SPEC) | spec}
    api.put(Kind.INFERENCE_SERVICE, body)
    return Operator(api)


def live(operator: Operator, kind: Kind = Kind.DEPLOYMENT) -> dict[str, Any]:
    return operator.api.objects[(kind, "ns", "web")]


def edit(operator: Operator, kind: Kind, **spec: Any) -> None:
    body = live(operator, kind)
    body["spec"] |= spec
    body["metadata"]["generation"] += 1
    operator.api.put(kind, body)


def said(operator: Operator, kind: str) -> dict[str, Any]:
    conditions = live(operator, Kind.INFERENCE_SERVICE)["status"]["conditions"]
    found: dict[str, Any] = next((c for c in conditions if c["type"] == kind), {})
    return found


def run_pods(operator: Operator, count: int) -> None:
    """The Deployment's pods come up, and its status says so."""
    deployment = live(operator)
    hashed = deployment["metadata"]["annotations"]["tidegate.dev/template-hash"]
    for number in range(count):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T06:00:20Z"}
        scheduled = ready | {"type": "PodScheduled"}
        operator.api.put(
            Kind.POD,
            {
                "metadata": {
                    "name": f"web-1-{number}",
                    "namespace": "ns",
                    "uid": f"pod-{number}",
                    "labels": {"tidegate.dev/service": "web", "pod-template-hash": "1"},
                    "annotations": {"tidegate.dev/template-hash": hashed},
                    "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}],
                },
                "status": {
                    "phase": "Running",
                    "podIP": f"10.0.0.{number}",
                    "conditions": [ready, scheduled],
                    "containerStatuses": [{"name": "engine", "state": {"running": {}}, "restartCount": 0}],
                },
            },
        )
    endpoints = [{"conditions": {"ready": True}, "targetRef": {"uid": f"pod-{n}"}} for n in range(count)]
    labels = {"tidegate.dev/service": "web"}
    meta = {"name": "web-abc", "namespace": "ns", "labels": labels}
    operator.api.put(Kind.ENDPOINT_SLICE, {"metadata": meta, "endpoints": endpoints})
    deployment["status"] = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": count,
        "readyReplicas": count,
        "updatedReplicas": count,
        "availableReplicas": count,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}],
    }
    operator.api.put(Kind.DEPLOYMENT, deployment)


async def test_the_first_look_makes_every_child_and_says_that_it_starts() -> None:
    operator = with_service(replicas=2)
    await operator.look()
    for kind in CHILDREN.values():
        assert live(operator, kind)["metadata"]["ownerReferences"][0]["name"] == "web"
    assert live(operator)["spec"]["replicas"] == 2
    status = live(operator, Kind.INFERENCE_SERVICE)["status"]
    assert (status["observedGeneration"], status["ready"]) == (1, "0/2")
    assert said(operator, "Ready")["status"] == "False"
    assert said(operator, "Reconciling")["status"] == "True"


async def test_once_its_pods_answer_it_is_ready_and_nothing_is_rolling() -> None:
    operator = with_service(replicas=2)
    await operator.look()
    run_pods(operator, 2)
    await operator.look()
    assert said(operator, "Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 1,
        "lastTransitionTime": "",
        "reason": "Serving",
        "message": "2 of 2 replicas ready",
    }
    assert said(operator, "Reconciling") == {}


async def test_looking_again_and_again_writes_nothing() -> None:
    operator = with_service(replicas=2)
    await operator.look()
    run_pods(operator, 2)
    await operator.look(times=30)  # a minute of reports, after which a prediction stands
    written = len(operator.api.written)
    await operator.look(times=60)  # two more minutes
    assert [(str(c), n) for c, n, _ in operator.api.written[written:]] == []


@pytest.mark.parametrize("spec", [{"replicas": 2}, AUTO], ids=["a fixed number", "a number that scales"])
async def test_a_new_operator_moves_no_replica_and_no_generation(spec: dict[str, Any]) -> None:
    operator = with_service(**spec)
    await operator.look()
    edit(operator, Kind.DEPLOYMENT, replicas=spec.get("replicas", 4))
    run_pods(operator, spec.get("replicas", 4))
    await operator.look()
    before = {place: o["metadata"].get("generation") for place, o in operator.api.objects.items()}
    replicas = live(operator)["spec"]["replicas"]
    following = operator.again()
    await following.look(times=5)
    assert live(following)["spec"]["replicas"] == replicas
    assert {place: o["metadata"].get("generation") for place, o in operator.api.objects.items()} == before
    assert following.moves == []


async def test_an_operator_with_another_default_image_restarts_no_engine() -> None:
    operator = with_service()
    await operator.look()
    template = copy.deepcopy(live(operator)["spec"]["template"])
    upgraded = operator.again(image="engine:2")
    await upgraded.look(times=2)
    assert live(upgraded)["spec"]["template"] == template
    edit(upgraded, Kind.INFERENCE_SERVICE, engine={"maxRunningRequests": 3})
    await upgraded.look()
    assert live(upgraded)["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"


async def test_a_change_of_the_spec_is_reconciling_until_it_is_rolled_out() -> None:
    operator = with_service()
    await operator.look()
    run_pods(operator, 1)
    await operator.look()
    edit(operator, Kind.INFERENCE_SERVICE, engine={"maxRunningRequests": 3})
    await operator.look()
    assert said(operator, "Reconciling")["status"] == "True"
    run_pods(operator, 1)
    await operator.look()
    assert said(operator, "Reconciling") == {}
    assert said(operator, "Ready")["observedGeneration"] == 2


async def test_somebody_who_scales_the_deployment_of_a_fixed_service_is_overruled_and_told() -> None:
    operator = with_service(replicas=2)
    await operator.look()
    run_pods(operator, 2)
    edit(operator, Kind.DEPLOYMENT, replicas=7)
    await operator.look()
    assert live(operator)["spec"]["replicas"] == 2
    assert operator.moves == ["down"]
    assert any(event["reason"] == "Fixed" for event in operator.api.events)


async def test_before_the_number_falls_the_pods_are_hinted() -> None:
    operator = with_service(replicas=2)
    await operator.look()
    run_pods(operator, 2)
    edit(operator, Kind.INFERENCE_SERVICE, replicas=1)
    await operator.look()
    order = [call.resource for call, _, _ in operator.api.written]
    hints = [i for i, resource in enumerate(order) if resource == "pods"]
    last = max(i for i, resource in enumerate(order) if resource == "deployments")
    assert hints
    assert max(hints) < last


async def test_a_paused_service_is_reported_and_not_touched() -> None:
    operator = with_service(replicas=2, paused=True)
    await operator.look()
    assert {call.resource for call, _, _ in operator.api.written} == {"inferenceservices/status", "events"}
    assert (Kind.DEPLOYMENT, "ns", "web") not in operator.api.objects


async def test_a_spec_that_got_past_admission_is_refused_in_words_and_nothing_is_written_to_the_children() -> None:
    operator = with_service(replicas=-3, engine={"tensorParallel": 0})
    await operator.look(times=3)
    ready, stalled = said(operator, "Ready"), said(operator, "Stalled")
    assert (ready["status"], stalled["status"]) == ("False", "True")
    assert "spec.engine.tensorParallel" in ready["message"] or "spec.replicas" in ready["message"]
    assert (Kind.DEPLOYMENT, "ns", "web") not in operator.api.objects
    edit(operator, Kind.INFERENCE_SERVICE, replicas=1, engine={})
    await operator.look()
    assert said(operator, "Stalled") == {}


async def test_a_child_the_api_server_refuses_stalls_with_its_words_and_recovers() -> None:
    operator = with_service()
    patch = Kind.DEPLOYMENT.call("patch")
    operator.api.fail_with[patch] = Stall("Refused", "exceeded quota: cpu")
    with pytest.raises(Stall):
        await operator.look()
    stalled = said(operator, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "Refused")
    assert "exceeded quota" in said(operator, "Ready")["message"]
    operator.api.fail_with.clear()
    await operator.look()
    assert said(operator, "Stalled") == {}


async def test_a_busy_api_server_is_tried_again_and_nothing_is_said_of_it() -> None:
    operator = with_service()
    operator.api.fail_with[Kind.SERVICE.call("patch")] = RetryLater("Http500", "etcd")
    with pytest.raises(RetryLater):
        await operator.look()
    assert "status" not in live(operator, Kind.INFERENCE_SERVICE)
    operator.api.fail_with.clear()
    await operator.look()
    assert live(operator)["spec"]["replicas"] == 1


async def test_somebody_elses_service_of_the_name_is_left_alone_and_named() -> None:
    operator = with_service()
    theirs = {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"selector": {"app": "theirs"}}}
    operator.api.put(Kind.SERVICE, theirs)
    await operator.look(times=2)
    assert live(operator, Kind.SERVICE)["spec"] == {"selector": {"app": "theirs"}}
    assert said(operator, "Stalled")["reason"] == "ChildConflict"
    assert "Service web" in said(operator, "Ready")["message"]


async def test_status_event_and_log_say_the_same_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    operator = with_service()
    await operator.look(times=4)
    ready = said(operator, "Ready")
    told = [e for e in operator.api.events if e["reason"] == ready["reason"]]
    assert [e["note"] for e in told] == [ready["message"]]
    assert [r for r in caplog.records if ready["message"] in r.getMessage()]


async def test_an_event_that_cannot_be_written_stops_nothing() -> None:
    operator = with_service()
    operator.api.fail_with[Kind.EVENT.call("create")] = Stall("Forbidden", "no right")
    await operator.look()
    assert live(operator)["spec"]["replicas"] == 1


async def test_a_status_that_no_operator_wrote_is_replaced() -> None:
    operator = with_service()
    live(operator, Kind.INFERENCE_SERVICE)["status"] = {"conditions": "rubbish", "scaling": 7}
    await operator.look()
    assert said(operator, "Ready")["status"] == "False"


async def test_what_is_gone_is_forgotten() -> None:
    operator = with_service()
    await operator.look()
    del operator.api.objects[(Kind.INFERENCE_SERVICE, "ns", "web")]
    calls = len(operator.api.calls)
    await operator.look()
    assert [c for c in operator.api.calls[calls:] if c.verb != "list"] == []


async def test_a_whole_life_uses_every_right_the_operator_has_and_no_other() -> None:
    operator = with_service(replicas=2)
    await operator.look()
    run_pods(operator, 2)
    edit(operator, Kind.INFERENCE_SERVICE, replicas=1)
    await operator.look()
    watches = {kind.call("watch") for kind in WATCHED}  # kopf's
    assert set(operator.api.calls) | watches == CLUSTER_CALLS


async def test_how_a_service_stands_is_told_at_every_look_and_withdrawn_with_it() -> None:
    operator = with_service(**AUTO)
    await operator.look(2)
    told = operator.shown[WEB]
    assert told is not None
    assert told.scaling is not None
    assert told.scaling.desired == 1
    operator.api.objects.pop((Kind.INFERENCE_SERVICE, "ns", "web"))
    await operator.look()
    assert operator.shown == {WEB: None}


async def test_a_number_wanted_from_outside_is_followed_and_kept_in_the_history() -> None:
    operator = with_service(replicas=1, scaling={"mode": "external"})
    await operator.look(2)
    run_pods(operator, 1)
    await operator.look(2)
    edit(operator, Kind.INFERENCE_SERVICE, replicas=3)
    await operator.look(2)
    assert live(operator)["spec"]["replicas"] == 3
    scaling = live(operator, Kind.INFERENCE_SERVICE)["status"]["scaling"]
    assert (scaling["mode"], scaling["desired"], scaling["reason"]) == ("external", 3, "External")
    newest = scaling["history"][0]
    assert (newest["before"], newest["desired"]) == (1, 3)


async def test_reads_that_are_far_apart_are_said_and_do_not_make_data_stale() -> None:
    operator = with_service(**AUTO)
    await operator.look()
    run_pods(operator, 1)
    await operator.look()
    operator.pace.round_took(40, idle=0)
    await operator.look()
    operator.now += 60  # one read was missed
    await operator.reconciler.reconcile(WEB)
    available = said(operator, "MetricsAvailable")
    assert available["status"] == "True"
    assert "asked every 40 s" in available["message"]
    operator.now += 70  # three were
    await operator.reconciler.reconcile(WEB)
    assert said(operator, "MetricsAvailable")["reason"] == "Stale"


async def test_a_change_that_leaves_the_pods_as_they_are_is_applied_too() -> None:
    operator = with_service(replicas=2)
    await operator.look(times=2)
    service = live(operator, Kind.INFERENCE_SERVICE)
    service["spec"]["replicas"] = 1
    service["metadata"]["generation"] += 1
    operator.api.put(Kind.INFERENCE_SERVICE, service)
    await operator.look()
    assert live(operator)["spec"]["replicas"] == 1
    del operator.api.objects[Kind.DEPLOYMENT, "ns", "web"]
    await operator.look(times=2)
    assert live(operator)["spec"]["replicas"] == 1


async def test_figures_of_a_thousand_services_are_written_less_often_and_decisions_as_ever() -> None:
    operator = with_service(**AUTO)
    await operator.look()
    run_pods(operator, 1)
    await operator.look(times=40)
    operator.reconciler._kept |= {ServiceKey("ns", f"svc-{n}"): Kept(str(n), Memory()) for n in range(999)}
    written = [n for c, n, _ in operator.api.written if c.resource.endswith("/status")]
    service = live(operator, Kind.INFERENCE_SERVICE)
    service["status"]["scaling"]["running"] = 7  # a figure that is no longer so
    operator.api.put(Kind.INFERENCE_SERVICE, service)
    await operator.look(times=25)  # more than two minutes after the last write, which is plenty for one service
    assert [n for c, n, _ in operator.api.written if c.resource.endswith("/status")] == written
    await operator.look(times=25)
    assert len([n for c, n, _ in operator.api.written if c.resource.endswith("/status")]) == len(written) + 1
