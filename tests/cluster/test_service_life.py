"""A service from create to delete on a real cluster, with the real engine and model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from real_cluster import Json, condition
from tidegate_testbed.processes import inside

pytestmark = pytest.mark.cluster

CHILDREN = ("deployments", "services", "serviceaccounts", "poddisruptionbudgets", "networkpolicies")
READY_WITHIN = 90.0
"""Seconds: an engine starts in about 10 s of its CPU limit; two start side by side on two cores."""


def is_ready(service: Json) -> bool:
    ready = condition(service, "Ready")
    return ready.get("status") == "True" and ready.get("observedGeneration", 0) == service["metadata"]["generation"]


def wait_ready(room: Any, name: str, replicas: int = 1, within: float = READY_WITHIN) -> Json:
    def look() -> Json | None:
        service: Json = room.get(name)
        enough = service.get("status", {}).get("readyReplicas") == replicas
        return service if is_ready(service) and enough else None

    found: Json = room.wait(f"{name} is Ready with {replicas} replicas", look, within)
    return found


FETCH = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode() or None, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


class NoAnswer(Exception):
    """Nothing answered, or not well."""


def fetch(room: Any, url: str, body: str = "") -> str:
    """The answer to a GET, or to a POST where there is a body, from inside the cluster's network."""
    command = [*inside(room.testbed), sys.executable, "-c", FETCH, url, body]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoAnswer(done.stderr.strip().splitlines()[-1])
    return done.stdout


def ask(room: Any, name: str, question: str = "What is the capital of Japan?") -> str:
    """The answer through the Service, asked from inside the cluster's network."""
    service = room.cluster.get("services", room.name, name)
    body = {"model": name, "messages": [{"role": "user", "content": question}], "max_tokens": 12, "temperature": 0}
    url = f"http://{service['spec']['clusterIP']}/v1/chat/completions"

    def answered() -> str | None:
        try:
            return fetch(room, url, json.dumps(body))
        except NoAnswer as error:
            if "Connection refused" not in str(error):
                raise
            return None

    # kube-proxy hears of an endpoint about a second after the API server does, and refuses until then.
    text = room.wait(f"{url} is connected", answered, 10)
    answer: str = json.loads(text)["choices"][0]["message"]["content"]
    return answer


def generations(room: Any, name: str) -> dict[str, tuple[str, Any]]:
    """UID and generation (resource version where there is none) of the service and of every child."""
    found = {"inferenceservices": room.get(name)} | {p: room.cluster.get(p, room.name, name) for p in CHILDREN}
    assert all(found.values()), f"missing: {[p for p, o in found.items() if not o]}"
    return {
        plural: (o["metadata"]["uid"], o["metadata"].get("generation") or o["metadata"]["resourceVersion"])
        for plural, o in found.items()
    }


def children_left(room: Any, name: str) -> list[str]:
    return [plural for plural in CHILDREN if room.cluster.get(plural, room.name, name)]


@pytest.mark.usefixtures("engine_image")
def test_created_it_answers_edited_it_rolls_scaled_it_follows_applied_twice_nothing_moves(room: Any) -> None:
    room.service("web")
    service = wait_ready(room, "web")
    assert service["status"]["url"] == f"http://web.{room.name}.svc/v1"
    assert "Tokyo" in ask(room, "web")
    assert not condition(service, "Reconciling"), "nothing is rolling out"
    assert not condition(service, "Stalled")

    # Applying the same again, by the user and by the operator, moves nothing.
    before = generations(room, "web")
    same = {"apiVersion": "tidegate.dev/v1alpha1", "kind": "InferenceService", "spec": service["spec"]}
    room.cluster.merge("inferenceservices", room.name, "web", same)
    touched = {"metadata": {"annotations": {"example.com/touched": "yes"}}}
    room.cluster.merge("inferenceservices", room.name, "web", touched)
    (pod,) = room.pods("web")
    room.operator.end(signal.SIGTERM)
    room.operator.start()  # a fresh operator applies everything once more
    room.wait("the new operator leads", lambda: "leads" in room.operator.log.read_text().rpartition("waits for")[2], 30)
    room.wait("it has looked at web", lambda: looked_since_start(room), 30)
    assert generations(room, "web") == before
    assert [p["metadata"]["uid"] for p in room.pods("web")] == [pod["metadata"]["uid"]]

    # kubectl scale: the scale subresource is spec.replicas.
    room.cluster.merge("inferenceservices", room.name, "web", {"spec": {"replicas": 2}}, subresource="scale")
    scaled = wait_ready(room, "web", replicas=2)
    assert scaled["status"]["selector"]
    assert pod["metadata"]["uid"] in {p["metadata"]["uid"] for p in room.pods("web")}, "scaling restarts no pod"

    # A pod that dies comes back, and the number stays.
    victim = pod["metadata"]["name"]
    room.cluster.delete("pods", room.name, victim, gracePeriodSeconds=0)
    room.wait("the pod is gone", lambda: victim not in {p["metadata"]["name"] for p in room.pods("web")}, 30)
    wait_ready(room, "web", replicas=2)
    deployment = room.cluster.get("deployments", room.name, "web")
    assert deployment["spec"]["replicas"] == 2

    # An edit rolls, and says so while it does.
    room.cluster.merge("inferenceservices", room.name, "web", {"spec": {"replicas": 1}}, subresource="scale")
    wait_ready(room, "web", replicas=1)
    old = room.pods("web")
    room.cluster.merge("inferenceservices", room.name, "web", {"spec": {"engine": {"maxRunningRequests": 3}}})
    room.wait("Reconciling is said", lambda: condition(room.get("web"), "Reconciling").get("status") == "True", 30)
    rolled = room.wait(
        "Reconciling goes, Ready stays",
        lambda: (s := room.get("web")) and is_ready(s) and not condition(s, "Reconciling") and s,
        READY_WITHIN,
    )
    assert rolled["status"]["observedGeneration"] == rolled["metadata"]["generation"]
    new = [p for p in room.pods("web") if p["metadata"]["uid"] not in {o["metadata"]["uid"] for o in old}]
    assert len(new) == 1
    arguments = new[0]["spec"]["containers"][0]
    assert "--max-running-requests" in json.dumps(arguments)

    # Deleted, everything goes with it.
    room.cluster.delete("inferenceservices", room.name, "web")
    room.wait("every child is collected", lambda: not children_left(room, "web"), 60)


def looked_since_start(room: Any) -> bool:
    """Whether the operator has finished a look since its start, by its own metrics."""
    try:
        text = fetch(room, "http://127.0.0.1:18080/metrics")
    except NoAnswer:
        return False
    return any(
        line.startswith('tidegate_operator_reconcile_seconds_count{outcome="ok"}') and float(line.split()[-1]) >= 5
        for line in text.splitlines()
    )


@pytest.mark.usefixtures("engine_image")
def test_two_services_of_one_name_in_two_namespaces_know_nothing_of_each_other(make_room: Any) -> None:
    one, two = make_room(), make_room()
    one.service("web")
    two.service("web")
    for room in (one, two):
        wait_ready(room, "web", within=2 * READY_WITHIN)
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda room: ask(room, "web"), (one, two)))
    assert all("Tokyo" in answer for answer in answers)
    one.cluster.delete("inferenceservices", one.name, "web")
    one.wait("the first one's children are collected", lambda: not children_left(one, "web"), 60)
    assert is_ready(two.get("web"))
    assert "Tokyo" in ask(two, "web")


def test_deleted_while_the_operator_is_away_its_children_go_too(room: Any) -> None:
    room.service("web", replicas=1, engine={"image": "localhost/tidegate/none:1"})
    room.wait("the children are there", lambda: not set(CHILDREN) - set(children_left(room, "web")), 30)
    room.operator.end(signal.SIGKILL)
    room.cluster.delete("inferenceservices", room.name, "web")
    room.wait("the object is gone at once", lambda: room.cluster.get("inferenceservices", room.name, "web") is None, 5)
    room.wait("every child is collected", lambda: not children_left(room, "web"), 60)


@pytest.mark.parametrize("moment", [0.05, 0.3], ids=lambda s: f"killed {s} s after the create")
def test_killed_in_the_middle_of_a_reconcile_the_next_operator_finishes_it(room: Any, moment: float) -> None:
    room.service("web", replicas=3, engine={"image": "localhost/tidegate/none:1"})
    time.sleep(moment)  # the moment of the kill is the case, not a wait for anything
    room.operator.end(signal.SIGKILL)
    room.operator.start()
    room.wait("the children are there", lambda: not set(CHILDREN) - set(children_left(room, "web")), 40)
    deployment = room.wait(
        "the number is as asked",
        lambda: (d := room.cluster.get("deployments", room.name, "web")) and d["spec"]["replicas"] == 3 and d,
        20,
    )
    # Killed and started again, no replica moves: the generation counts every change of the spec.
    room.operator.end(signal.SIGKILL)
    room.operator.start()
    room.wait("it has looked at web", lambda: looked_since_start(room), 40)
    after = room.cluster.get("deployments", room.name, "web")
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"]
    assert after["spec"]["replicas"] == 3
