"""What goes wrong is said: on the object, within a minute, in words of whoever knows."""

from __future__ import annotations

from typing import Any

import pytest
from real_cluster import Json, condition

pytestmark = pytest.mark.cluster


def wait_not_ready(room: Any, name: str, reason: str, says: str, within: float = 60) -> Json:
    """Wait until Ready is False with this reason, and a message that holds these words."""

    def look() -> Json | None:
        service: Json = room.get(name)
        ready = condition(service, "Ready")
        right = ready.get("status") == "False" and ready.get("reason") == reason and says in ready.get("message", "")
        return service if right else None

    try:
        found: Json = room.wait(f"Ready is False, {reason}, {says!r}", look, within)
    except AssertionError as error:
        raise AssertionError(f"{error}\nReady is {condition(room.get(name), 'Ready')}") from None
    return found


def test_an_image_that_does_not_exist_is_said_within_a_minute(room: Any) -> None:
    image = "localhost/tidegate/does-not-exist:1"
    room.service("web", engine={"image": image})
    service = wait_not_ready(room, "web", "ImagePullFailed", image)
    # The same words in an event.
    message = condition(service, "Ready")["message"]
    room.wait(
        "an event says the same",
        lambda: any(e.get("note") == message[:1024] for e in room.cluster.list("events", room.name)),
        10,
    )
    assert service["status"].get("readyReplicas", 0) == 0


@pytest.mark.usefixtures("engine_image")
def test_a_model_path_that_does_not_exist_is_said_in_the_engines_own_line(room: Any) -> None:
    room.service("web", model={"source": "pvc://models/no-such-model.gguf"})
    wait_not_ready(room, "web", "ModelFailed", "no-such-model.gguf")
    model = condition(room.get("web"), "ModelAvailable")
    assert model["status"] == "False"
    assert "no-such-model.gguf" in model["message"]


def test_resources_no_node_has_are_said_in_the_schedulers_words(room: Any) -> None:
    room.service(
        "web", resources={"requests": {"cpu": "900", "memory": "1Gi"}, "limits": {"cpu": "900", "memory": "1Gi"}}
    )
    wait_not_ready(room, "web", "Unschedulable", "Insufficient cpu")


def test_a_claim_that_does_not_exist_is_said_in_the_schedulers_words(room: Any) -> None:
    room.service("web", model={"source": "pvc://nowhere/model.gguf"})
    wait_not_ready(room, "web", "Unschedulable", "nowhere")


@pytest.mark.usefixtures("engine_image")
def test_a_mended_service_recovers(room: Any) -> None:
    room.service("web", engine={"image": "localhost/tidegate/does-not-exist:1"})
    wait_not_ready(room, "web", "ImagePullFailed", "does-not-exist")
    room.cluster.merge("inferenceservices", room.name, "web", {"spec": {"engine": {"image": None}}})
    room.wait("Ready", lambda: condition(room.get("web"), "Ready").get("status") == "True", 90)


def test_somebody_elses_object_of_the_same_name_is_not_touched_and_is_named(room: Any) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": room.name},
        "spec": {"ports": [{"port": 1234}], "selector": {"app": "theirs"}},
    }
    path = room.cluster.path("services", room.name)
    assert room.cluster.http.post(path, json=theirs).is_success
    room.service("web")
    room.wait("Stalled is said", lambda: "Service" in condition(room.get("web"), "Stalled").get("message", ""), 30)
    left = room.cluster.get("services", room.name, "web")
    assert left["spec"]["selector"] == {"app": "theirs"}
    assert "ownerReferences" not in left["metadata"]
    room.cluster.delete("services", room.name, "web")
    room.wait("it goes on by itself", lambda: room.cluster.get("deployments", room.name, "web"), 60)
