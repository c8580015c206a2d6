"""What `tidegate explain` says: what was seen, who won, what limited it, what would change it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from load_reports import NOW, ready, report, seen
from tidegate_lab.explain.account import account
from tidegate_operator import resource
from tidegate_operator.decide.scaling import decide
from tidegate_operator.decide.scaling_memory import Learned, Memory, Window
from tidegate_operator.decide.scaling_spec import policy_of
from tidegate_operator.decide.status import Subject
from tidegate_operator.decide.status import report as report_status
from tidegate_operator.decide.status_conditions import Findings
from tidegate_operator.observed import ServiceKey, ServiceObserved

IDLE = seen(ready("a", report()), ready("b", report()))
QUEUED = seen(ready("a", report(running=4, waiting=30, last_step_age_s=0.1, oldest_waiting_s=3.0)))
SILENT = seen(ready("a", report()), ready("b", scrape_error="connection refused"))
PAST = Memory(learned=Learned(cold_starts_s=(12.0, 14.0)), window=Window(since=NOW - 60))


def explained(
    spec: dict[str, Any], observed: ServiceObserved = IDLE, memory: Memory = PAST, looks: int = 1, now: float = NOW
) -> str:
    """The whole text, of an object whose status the operator's own code wrote."""
    body = {"model": {"source": "pvc://m/m.gguf"}} | spec
    policy = policy_of(resource.read_spec(body))
    status = resource.InferenceServiceStatus()
    for look in range(looks):
        decision = decide(policy, observed, memory, now + 2 * look)
        findings = Findings(policy=policy, observed=observed, decision=decision, trouble=None, template_hash=None)
        subject = Subject(key=ServiceKey("demo", "web"), generation=3, previous=status)
        status = report_status(subject, findings, now + 2 * look)
        memory = decision.memory
    told = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    meta = {"namespace": "demo", "name": "web", "generation": 3}
    return "\n".join(account({"metadata": meta, "spec": body, "status": told}, now + 60))


def auto(**more: Any) -> dict[str, Any]:
    return {"scaling": {"minReplicas": 1, "maxReplicas": 6} | more}


@pytest.mark.parametrize(
    ("spec", "observed", "words"),
    [
        pytest.param(
            auto(), QUEUED,
            ("demo/web: 2 replicas wanted, 1 ready (mode auto, 1 to 6 now)", "QueueDepth: 2 replicas: 30 requests wait",
             "decided by: queueDepth", "data Flowing; 30 requests wait, 4 run", "> queueDepth",
             "a replica starts in 14s (p90 of the last 2 cold starts)", "1 -> 2  QueueDepth",
             "more: over 1 requests waiting"),
            id="a queue adds one",
        ),
        pytest.param(
            auto(maxReplicas=1), QUEUED,
            ("limited by: maxReplicas", "limited by maxReplicas: spec.scaling.maxReplicas 1; raise it for more"),
            id="the most replicas",
        ),
        pytest.param(
            auto() | {"cost": {"perReplicaHour": 2.5, "maxPerHour": 4}}, QUEUED,
            ("1 to 1 now by budget", "limited by budget: spec.cost.maxPerHour 4 pays for 1 replicas; raise it for more",
             "4 an hour pays for 1 replicas at 2.5", "perReplicaHour 2.5, maxPerHour 4", "2.5 an hour"),
            id="the budget",
        ),
        pytest.param(
            auto(), SILENT,
            ("MetricsAvailable=False, Partial: 1 of 2 ready replicas answer (pod-b: connection refused)",
             "data Partial: the number does not fall until every ready replica answers"),
            id="a silent replica",
        ),
        pytest.param(
            {"replicas": 1} | auto(mode="advisory"), QUEUED,
            ("1 replicas wanted, 1 ready (mode advisory", "Tidegate would choose 2", "AdvisoryQueueDepth",
             "spec.replicas; with scaling.mode auto", "ago  1 (Tidegate would have chosen 2)"),
            id="advice",
        ),
        pytest.param(
            {"replicas": 1, "scaling": {"mode": "external"}}, QUEUED,
            ("1 replicas wanted, 1 ready (mode external)", "Tidegate would choose 2",
             "whoever writes the scale subresource"),
            id="an outside autoscaler",
        ),
        pytest.param(
            {"replicas": 2}, IDLE,
            ("2 replicas wanted, 2 ready (mode fixed)", "spec.replicas; or spec.scaling in its place"),
            id="a fixed number",
        ),
        pytest.param(
            auto() | {"paused": True}, IDLE, ("(paused", "spec.paused: false lets the operator act again"), id="paused"
        ),
    ],
)  # fmt: skip
def test_it_says(spec: dict[str, Any], observed: ServiceObserved, words: tuple[str, ...]) -> None:
    text = explained(spec, observed)
    assert not [word for word in words if word not in text], text


def test_a_number_that_may_not_fall_yet_names_the_window() -> None:
    memory = replace(PAST, window=Window(since=NOW - 60))
    text = explained(auto(), IDLE, memory, looks=3)
    assert "limited by scaleDownWindow: fewer must have been enough for 300 s" in text


@pytest.mark.parametrize(
    ("now", "words"),
    [
        pytest.param("2026-11-27T10:00+01:00", "office: 4 at least, for 10 h, Europe/Berlin; active now", id="in it"),
        pytest.param("2026-11-27T18:59+01:00", "Europe/Berlin; next in 2 d 13 h", id="on a Friday evening"),
        pytest.param("2026-11-30T06:34+01:00", "Europe/Berlin; next in 1 h 25 min", id="on a Monday morning"),
    ],
)
def test_schedules_say_when_they_are(now: str, words: str) -> None:
    schedule = {"name": "office", "cron": "0 8 * * mon-fri", "timeZone": "Europe/Berlin", "duration": "10h"}
    spec = auto(schedules=[schedule | {"minReplicas": 4}])
    assert words in explained(spec, now=datetime.fromisoformat(now).timestamp())


def test_an_object_that_was_not_looked_at_says_so() -> None:
    service = {
        "metadata": {"namespace": "demo", "name": "web", "generation": 1},
        "spec": {"model": {"source": "pvc://m/m"}},
    }
    assert list(account(service, NOW)) == ["demo/web: the operator has not looked at it yet"]


def test_an_older_generation_is_named() -> None:
    body = {"model": {"source": "pvc://m/m.gguf"}, "replicas": 2}
    status = {"observedGeneration": 3, "scaling": {"desired": 2, "current": 2, "reason": "Fixed"}}
    meta = {"namespace": "demo", "name": "web", "generation": 4}
    text = "\n".join(account({"metadata": meta, "spec": body, "status": status}, NOW))
    assert "of generation 3; the operator has not looked at 4 yet" in text
    assert "none yet" in text


def test_a_status_of_another_version_is_told_in_a_line() -> None:
    spec = {"model": {"source": "pvc://m/m.gguf"}}
    meta = {"namespace": "demo", "name": "web", "generation": 1}
    told = list(account({"metadata": meta, "spec": spec, "status": {"scaling": {"desired": "many"}}}, NOW))
    assert told == ["demo/web: status.scaling.desired cannot be read; use the tidegate of the operator's version"]
