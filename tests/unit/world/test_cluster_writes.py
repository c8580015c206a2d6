"""What is sent to the API server, and above all what is not."""

from __future__ import annotations

from typing import Any

import pytest
from answering_pods import broken
from in_memory_api import InMemoryApi
from tidegate_operator.errors import Gone, RetryLater, WaitFor
from tidegate_operator.observed import ServiceKey
from tidegate_operator.world.calls import Kind
from tidegate_operator.world.cluster import RESEND_AFTER_S, Cluster
from tidegate_operator.world.objects import ServiceRecord
from tidegate_operator.world.scrape import Scraper
from tidegate_operator.world.view import View

WEB = ServiceKey("ns", "web")


class World:
    """A cluster over an API server in memory, with one service."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.api = InMemoryApi()
        scraper = Scraper(broken())
        self.cluster = Cluster(self.api, View(self.api, scraper), "operator-1", clock=lambda: self.now)
        body = self.api.put(
            Kind.INFERENCE_SERVICE, {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"model": {"source": "x"}}}
        )
        self.cluster.view.see(Kind.INFERENCE_SERVICE, body, deleted=False)

    @property
    def service(self) -> ServiceRecord:
        found = self.cluster.view.service(WEB)
        assert found is not None
        return found

    def manifest(self, kind: str = "Deployment", **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1" if kind == "Deployment" else "v1",
            "kind": kind,
            "metadata": {
                "name": "web",
                "namespace": "ns",
                "labels": {"tidegate.dev/service": "web"},
                "ownerReferences": [{"kind": "InferenceService", "name": "web", "uid": self.service.uid}],
            },
            "spec": {"replicas": 1} | spec,
        }

    def live(self, kind: Kind = Kind.DEPLOYMENT) -> dict[str, Any]:
        return self.api.objects[(kind, "ns", "web")]


async def test_what_has_not_changed_is_not_sent_again() -> None:
    world = World()
    await world.cluster.observe(world.service)
    assert await world.cluster.apply(world.service, world.manifest())
    sent = len(world.api.written)
    assert not await world.cluster.apply(world.service, world.manifest())
    assert len(world.api.written) == sent


async def test_somebody_elses_edit_of_a_deployment_is_answered_once_and_not_fought_over() -> None:
    world = World()
    await world.cluster.observe(world.service)
    await world.cluster.apply(world.service, world.manifest())
    edited = world.live()
    edited["spec"] = {"replicas": 1, "paused": True}
    edited["metadata"]["generation"] += 1
    world.cluster.view.see(Kind.DEPLOYMENT, world.api.put(Kind.DEPLOYMENT, edited), deleted=False)
    assert await world.cluster.apply(world.service, world.manifest())
    assert not await world.cluster.apply(world.service, world.manifest())


async def test_children_that_are_not_watched_are_sent_again_now_and_then() -> None:
    world = World()
    await world.cluster.observe(world.service)
    await world.cluster.apply(world.service, world.manifest("Service"))
    assert not await world.cluster.apply(world.service, world.manifest("Service"))
    world.now += RESEND_AFTER_S + 1
    assert await world.cluster.apply(world.service, world.manifest("Service"))


@pytest.mark.parametrize(
    ("meta", "owner"),
    [
        pytest.param({}, "nobody", id="an object made by hand"),
        pytest.param({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm", id="an object of a chart"),
        pytest.param(
            {"ownerReferences": [{"kind": "Foo", "name": "bar", "uid": "1", "controller": True}]},
            "Foo/bar",
            id="an object of another controller",
        ),
    ],
)
async def test_a_foreign_object_under_a_childs_name_is_named(meta: dict[str, Any], owner: str) -> None:
    world = World()
    world.api.put(Kind.SERVICE, {"metadata": {"name": "web", "namespace": "ns"} | meta, "spec": {}})
    observed = await world.cluster.observe(world.service)
    assert [(c.kind, c.name, c.owner) for c in observed.conflicts] == [("Service", "web", owner)]


async def test_a_conflict_that_was_cleared_is_noticed() -> None:
    world = World()
    world.api.put(Kind.SERVICE, {"metadata": {"name": "web", "namespace": "ns"}, "spec": {}})
    assert (await world.cluster.observe(world.service)).conflicts
    del world.api.objects[(Kind.SERVICE, "ns", "web")]
    world.now += 60
    assert not (await world.cluster.observe(world.service)).conflicts


async def test_the_children_of_an_earlier_service_of_the_same_name_are_waited_for() -> None:
    world = World()
    owner = {"kind": "InferenceService", "name": "web", "uid": "an earlier one"}
    world.api.put(
        Kind.DEPLOYMENT, {"metadata": {"name": "web", "namespace": "ns", "ownerReferences": [owner]}, "spec": {}}
    )
    with pytest.raises(WaitFor):
        await world.cluster.observe(world.service)


async def test_an_apply_names_the_object_it_means_so_that_a_newcomer_is_not_overwritten() -> None:
    world = World()
    await world.cluster.observe(world.service)
    await world.cluster.apply(world.service, world.manifest())
    await world.cluster.apply(world.service, world.manifest(replicas=2))
    _, _, body = world.api.written[-1]
    assert body["metadata"]["uid"] == world.live()["metadata"]["uid"]


async def test_after_a_refusal_that_says_try_again_the_child_is_looked_up_anew() -> None:
    world = World()
    await world.cluster.observe(world.service)
    await world.cluster.apply(world.service, world.manifest("Service"))
    world.api.fail_with[Kind.SERVICE.call("patch")] = RetryLater("Conflict", "another uid")
    with pytest.raises(RetryLater):
        await world.cluster.apply(world.service, world.manifest("Service", type="ClusterIP"))
    world.api.fail_with.clear()
    world.api.calls.clear()
    await world.cluster.observe(world.service)
    assert Kind.SERVICE.call("get") in world.api.calls


async def test_a_status_goes_to_the_subresource_and_carries_no_spec() -> None:
    world = World()
    await world.cluster.write_status(world.service, {"replicas": 2})
    call, name, body = world.api.written[-1]
    assert (call.resource, name) == ("inferenceservices/status", "web")
    assert set(body) == {"apiVersion", "kind", "metadata", "status"}
    assert set(body["metadata"]) == {"name", "namespace", "uid"}
    assert world.service.status == {"replicas": 2}
    assert world.service.generation == 1


async def test_a_status_of_an_object_that_is_gone_is_no_failure_to_retry() -> None:
    world = World()
    service = world.service
    world.api.objects.clear()
    with pytest.raises(Gone):
        await world.cluster.write_status(service, {"replicas": 2})


async def test_the_hint_on_a_pod_that_is_gone_is_let_go() -> None:
    world = World()
    await world.cluster.set_deletion_cost(WEB, "web-1", 3)


async def test_an_event_names_the_object_the_reason_and_at_most_1024_letters() -> None:
    world = World()
    await world.cluster.tell(world.service, warning=True, reason="ImagePullFailed", message="x" * 5000)
    (event,) = world.api.events
    assert (event["type"], event["reason"], len(event["note"])) == ("Warning", "ImagePullFailed", 1024)
    assert event["regarding"]["uid"] == world.service.uid
