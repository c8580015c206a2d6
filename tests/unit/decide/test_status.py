"""What is told of a service, in the words a user reads with kubectl."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from load_reports import NOW, pending, ready, report, seen
from tidegate_operator import resource
from tidegate_operator.decide.scaling import decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import Direction, LatencyTarget, Metric, Mode, Price, ScalingPolicy
from tidegate_operator.decide.scaling_spec import policy_of
from tidegate_operator.decide.scaling_terms import Term
from tidegate_operator.decide.status import Subject, is_write_due, report_refused
from tidegate_operator.decide.status import report as report_status
from tidegate_operator.decide.status_conditions import Findings
from tidegate_operator.decide.status_diagnosis import Cause
from tidegate_operator.observed import (
    ChildConflict,
    ConditionFacts,
    ContainerFailure,
    Phase,
    ReplicaFacts,
    ServiceKey,
    ServiceObserved,
)
from tidegate_operator.observed_load import Counters, Sketches
from tidegate_operator.observed_sketch import Sketch

AUTO = ScalingPolicy(minimum=1, maximum=10, queue_depth=2, slots=4, price=Price(per_replica_hour=1.5))
BLANK = resource.InferenceServiceStatus()
DONE = ConditionFacts(status="True", reason="NewReplicaSetAvailable")
UNDER_WAY = ConditionFacts(status="True", reason="ReplicaSetUpdated")
LATE = ConditionFacts(status="False", reason="ProgressDeadlineExceeded", message="ReplicaSet x has timed out")


def serving(*replicas: ReplicaFacts, progressing: ConditionFacts = DONE, **facts: Any) -> ServiceObserved:
    """A service whose ready pods are endpoints."""
    observed = seen(*replicas, wanted=facts.pop("wanted", None))
    assert observed.deployment is not None
    deployment = replace(observed.deployment, progressing=progressing, template_hash="h1", **facts)
    uids = frozenset(r.uid for r in replicas if r.phase is Phase.READY)
    return replace(observed, deployment=deployment, ready_endpoint_uids=uids)


def told(
    observed: ServiceObserved,
    policy: ScalingPolicy = AUTO,
    previous: resource.InferenceServiceStatus = BLANK,
    trouble: Cause | None = None,
    template_hash: str | None = "h1",
    now: float = NOW,
) -> resource.InferenceServiceStatus:
    decision = decide(policy, observed, Memory(), now)
    findings = Findings(
        policy=policy, observed=observed, decision=decision, trouble=trouble, template_hash=template_hash
    )
    return report_status(Subject(key=ServiceKey("ml", "smol"), generation=7, previous=previous), findings, now)


def condition(status: resource.InferenceServiceStatus, kind: str) -> resource.Condition | None:
    return next((c for c in status.conditions if c.type == kind), None)


def failed(reason: str, message: str = "", exit_code: int | None = None) -> ReplicaFacts:
    failure = ContainerFailure(reason=reason, message=message, exit_code=exit_code)
    return pending("a", phase=Phase.FAILED, failure=failure)


@pytest.mark.parametrize(
    ("observed", "truth", "reason", "words"),
    [
        pytest.param(serving(ready("a", report())), "True", "Serving", "1 of 1", id="an endpoint answered"),
        pytest.param(
            serving(ready("a", report(state="starting"))), "False", "NotAnswering", "answered", id="it says it starts"
        ),
        pytest.param(
            serving(ready("a", scrape_error="connection refused")),
            "False",
            "NotAnswering",
            "connection refused",
            id="ready for Kubernetes, and silent",
        ),
        pytest.param(
            replace(serving(ready("a", report())), ready_endpoint_uids=frozenset()),
            "False",
            "NotAnswering",
            "through the service",
            id="no endpoint of the service yet",
        ),
        pytest.param(serving(pending("a")), "False", "Starting", "0 of 1", id="loading"),
        pytest.param(ServiceObserved(), "False", "Creating", "Deployment", id="nothing there yet"),
        pytest.param(
            serving(failed("ErrImagePull", 'failed to resolve "reg/x:1": not found')),
            "False",
            "ImagePullFailed",
            "reg/x:1",
            id="the image does not exist",
        ),
        pytest.param(
            serving(failed("CrashLoopBackOff", "/models/x.gguf: no such file", 3)),
            "False",
            "ModelFailed",
            "/models/x.gguf: no such file",
            id="the model path does not exist",
        ),
        pytest.param(
            serving(failed("CrashLoopBackOff", "--dtype: 'float8' is unknown", 2)),
            "False",
            "EngineRefused",
            "float8",
            id="a wrong flag",
        ),
        pytest.param(serving(failed("CrashLoopBackOff", "", 1)), "False", "CrashLoop", "exit code 1", id="it crashes"),
        pytest.param(
            serving(failed("OOMKilled", "", 137)), "False", "OutOfMemory", "resources.limits.memory", id="no memory"
        ),
        pytest.param(
            serving(pending("a", scheduled_at=None, unschedulable="0/1 nodes are available: 1 Insufficient cpu")),
            "False",
            "Unschedulable",
            "Insufficient cpu",
            id="the scheduler's own words",
        ),
        pytest.param(
            serving(pending("a"), progressing=LATE), "False", "ProgressDeadlineExceeded", "timed out", id="too long"
        ),
        pytest.param(
            serving(
                wanted=1, replica_failure=ConditionFacts(status="True", reason="FailedCreate", message="quota cpu")
            ),
            "False",
            "PodsRefused",
            "quota cpu",
            id="a quota",
        ),
        pytest.param(
            replace(
                serving(pending("a")), conflicts=(ChildConflict(kind="Service", name="smol", owner="Deployment/web"),)
            ),
            "False",
            "ChildConflict",
            "Deployment/web",
            id="the name is taken",
        ),
        pytest.param(
            replace(
                serving(pending("a")),
                terminations=(ContainerFailure(reason="Error", message="bad header", exit_code=3),),
            ),
            "False",
            "ModelFailed",
            "bad header",
            id="between two starts of a crash loop",
        ),
        pytest.param(
            serving(ready("old", report(), current=False), pending("new"), progressing=UNDER_WAY),
            "False",
            "RollingOut",
            "former",
            id="only the former spec still answers",
        ),
        pytest.param(
            serving(ready("a", report()), failed("ErrImagePull", "not found")),
            "True",
            "Serving",
            "ImagePullFailed",
            id="one serves and one cannot: both are said",
        ),
    ],
)
def test_ready_and_why_not(observed: ServiceObserved, truth: str, reason: str, words: str) -> None:
    said = condition(told(observed), "Ready")
    assert said is not None
    assert (said.status, said.reason) == (truth, reason)
    assert words in said.message


def test_zero_on_purpose_is_ready() -> None:
    fixed = ScalingPolicy(mode=Mode.FIXED, replicas=0, minimum=0, maximum=0)
    status = told(serving(wanted=0), fixed)
    said = condition(status, "Ready")
    assert said is not None
    assert (said.status, said.reason) == ("True", "ScaledToZero")
    assert condition(status, "Reconciling") is None
    assert status.ready == "0/0"


@pytest.mark.parametrize(
    ("observed", "template_hash", "rolling"),
    [
        pytest.param(serving(ready("a", report())), "h1", False, id="settled"),
        pytest.param(serving(ready("a", report()), pending("b")), "h1", False, id="replicas move: no change of spec"),
        pytest.param(serving(ready("a", report())), "h2", True, id="a new template is not applied yet"),
        pytest.param(serving(ready("a", report(), current=False), pending("b")), "h1", True, id="old pods are there"),
        pytest.param(serving(pending("a"), progressing=UNDER_WAY), "h1", True, id="first roll-out"),
        pytest.param(ServiceObserved(), "h1", True, id="nothing there yet"),
    ],
)
def test_reconciling_is_a_change_of_spec_and_never_a_move_of_replicas(
    observed: ServiceObserved, template_hash: str, rolling: bool
) -> None:
    assert (condition(told(observed, template_hash=template_hash), "Reconciling") is not None) is rolling


@pytest.mark.parametrize(
    ("observed", "stalled"),
    [
        pytest.param(serving(failed("CrashLoopBackOff", "no such file", 3)), "ModelFailed", id="a person must act"),
        pytest.param(serving(pending("a"), progressing=LATE), "ProgressDeadlineExceeded", id="deadline"),
        pytest.param(serving(failed("ErrImagePull", "x")), None, id="an image may still turn up"),
        pytest.param(serving(pending("a", scheduled_at=None, unschedulable="0/1")), None, id="so may a node"),
    ],
)
def test_stalled_is_there_only_where_waiting_will_not_mend_it(observed: ServiceObserved, stalled: str | None) -> None:
    said = condition(told(observed), "Stalled")
    assert (said.reason if said else None) == stalled
    assert said is None or condition(told(observed), "Reconciling") is None


@pytest.mark.parametrize(
    ("replicas", "truth", "reason"),
    [
        pytest.param((ready("a", report()),), "True", "Answering", id="all answer"),
        pytest.param((ready("a", report()), ready("b", scrape_error="500")), "False", "Partial", id="half is silent"),
        pytest.param((ready("a", report(), load_age_s=99.0),), "False", "Stale", id="silent for long"),
        pytest.param((ready("a"),), "False", "Missing", id="never heard"),
        pytest.param((pending("a"),), "Unknown", "NoReplicas", id="nothing is ready"),
    ],
)
def test_metrics_available(replicas: tuple[ReplicaFacts, ...], truth: str, reason: str) -> None:
    said = condition(told(serving(*replicas)), "MetricsAvailable")
    assert said is not None
    assert (said.status, said.reason) == (truth, reason)


def test_nothing_is_false_where_all_is_well() -> None:
    """Fault 11: a GitOps tool would wait for ever."""
    for policy in (AUTO, ScalingPolicy(mode=Mode.FIXED), replace(AUTO, mode=Mode.ADVISORY, replicas=1)):
        assert {c.status for c in told(serving(ready("a", report())), policy).conditions} == {"True"}


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = told(serving(pending("a")))
    second = told(serving(failed("ErrImagePull", "x")), previous=first, now=NOW + 60)
    third = told(serving(ready("a", report())), previous=second, now=NOW + 90)
    times = [c.last_transition_time for s in (first, second, third) if (c := condition(s, "Ready"))]
    assert times[0] == times[1] != times[2]
    assert times[2] == "2023-11-14T22:14:50Z"


def test_trouble_with_the_cluster_comes_first() -> None:
    status = told(
        serving(pending("a")), trouble=Cause(reason="Forbidden", message="no right to create", needs_a_person=True)
    )
    ready_said, stalled = condition(status, "Ready"), condition(status, "Stalled")
    assert ready_said is not None
    assert ready_said.reason == "Forbidden"
    assert stalled is not None


def test_a_spec_that_cannot_be_read_leaves_the_figures() -> None:
    before = told(serving(ready("a", report())))
    status = report_refused(8, before, Cause(reason="UnreadableSpec", message="spec.x: y", needs_a_person=True), NOW)
    assert [c.type for c in status.conditions[:2]] == ["Ready", "Stalled"]
    assert (status.observed_generation, status.replicas) == (8, before.replicas)


def test_figures_of_latency_and_cost() -> None:
    memory, statuses = Memory(), []
    for second in (0, 2):
        load = report(
            uptime_s=600.0 + second,
            counters=Counters(received=50 * second, finished=50 * second, generated_tokens=500 * second, steps=second),
            sketches=Sketches(ttft=Sketch.of([0.25] * 50 * second)),
        )
        observed = serving(ready("a", load))
        decision = decide(AUTO, observed, memory, NOW + second)
        memory = decision.memory
        findings = Findings(policy=AUTO, observed=observed, decision=decision, trouble=None, template_hash="h1")
        subject = Subject(key=ServiceKey("ml", "smol"), generation=7, previous=BLANK)
        statuses.append(report_status(subject, findings, NOW + second))
    assert statuses[0].latency is None
    status = statuses[1]
    assert status.latency is not None
    assert status.latency.ttft is not None
    assert status.latency.ttft.p99 == pytest.approx(0.25, rel=0.01)
    assert status.latency.tpot is None
    # One replica at 1.5 an hour makes 500 tokens/s, 1.8 million an hour.
    assert status.cost is not None
    assert status.cost.per_million_tokens == pytest.approx(1.5 / 1.8, rel=1e-3)
    assert status.cost.per_hour == 1.5
    assert (status.url, status.selector) == ("http://smol.ml.svc/v1", "tidegate.dev/service=smol")


def test_a_replica_is_paid_for_once_it_has_a_node() -> None:
    waiting = pending("c", phase=Phase.PENDING, scheduled_at=None)
    status = told(serving(ready("a", report()), pending("b"), waiting))
    assert status.cost is not None
    assert (status.cost.per_hour, status.cost.per_million_tokens) == (3.0, None)
    unpriced = told(serving(ready("a", report())), replace(AUTO, price=None))
    assert unpriced.cost is None


def test_the_history_keeps_the_newest_changes_and_nothing_where_nothing_changed() -> None:
    status = BLANK
    for number in range(14):
        policy = replace(AUTO, mode=Mode.FIXED, replicas=number // 2 + 1, maximum=99)
        status = told(serving(ready("a", report())), policy, status, now=NOW + number)
    assert status.scaling is not None
    assert [(c.before, c.desired) for c in status.scaling.history[:2]] == [(6, 7), (5, 6)]
    for number in range(14, 30):
        policy = replace(AUTO, mode=Mode.FIXED, replicas=number, maximum=99)
        status = told(serving(ready("a", report())), policy, status, now=NOW + number)
    assert status.scaling is not None
    history = status.scaling.history
    assert [c.desired for c in history] == list(range(29, 19, -1))
    assert history[0].reason == "Fixed"
    assert history[0].terms[0].inputs["slots"] == 4
    body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert len(str(body)) < 32_000, "ten changes of four terms fit an object many times"


def test_advice_that_changes_is_a_change_though_nothing_is_done() -> None:
    advised = replace(AUTO, mode=Mode.ADVISORY, replicas=1)
    calm = told(serving(ready("a", report())), advised)
    busy = report(running=4, waiting=30, last_step_age_s=0.1, oldest_waiting_s=3.0)
    status = told(serving(ready("a", busy)), advised, calm)
    assert status.scaling is not None
    first, *_ = status.scaling.history
    assert (first.before, first.desired, first.recommended, first.reason) == (1, 1, 2, "AdvisoryQueueDepth")


def test_for_an_outside_autoscaler_another_recommendation_alone_is_a_figure_and_no_change() -> None:
    policy = replace(AUTO, mode=Mode.EXTERNAL, replicas=1)
    calm = told(serving(ready("a", report())), policy)
    busy = report(running=4, waiting=30, last_step_age_s=0.1, oldest_waiting_s=3.0)
    status = told(serving(ready("a", busy)), policy, calm)
    assert status.scaling is not None
    assert calm.scaling is not None
    assert (calm.scaling.recommended, status.scaling.recommended) == (None, 2)
    said = condition(status, "ScalingActive")
    assert said is not None
    assert (said.status, said.reason) == ("Unknown", "External")
    assert said.message.endswith("through the scale subresource; Tidegate would choose 2")
    assert status.scaling.history == calm.scaling.history
    assert not is_write_due(calm, status, NOW - 5, NOW)
    assert is_write_due(calm, status, NOW - 31, NOW)


def test_an_outside_autoscaler_has_windows_and_bounds_of_its_own() -> None:
    spec = {"model": {"source": "pvc://m/m.gguf"}, "replicas": 2, "scaling": {"mode": "external"}}
    policy = policy_of(resource.read_spec(spec))
    assert (policy.minimum, policy.maximum) == (1, 1000)
    assert (policy.up, policy.down) == (Direction(), Direction())


def test_a_figure_that_is_no_number_is_left_out_of_the_status() -> None:
    term = Term(name="queueDepth", replicas=1, message="", inputs={"load": float("nan"), "slots": 4.0})
    observed = serving(ready("a", report()))
    decision = replace(decide(AUTO, observed, Memory(), NOW), terms=(term,))
    findings = Findings(policy=AUTO, observed=observed, decision=decision, trouble=None, template_hash="h1")
    status = report_status(Subject(key=ServiceKey("ml", "smol"), generation=7, previous=BLANK), findings, NOW)
    assert status.scaling is not None
    assert status.scaling.terms[0].inputs == {"slots": 4.0}


def test_a_target_missed_for_want_of_money_says_so() -> None:
    price = Price(per_replica_hour=2.5, max_per_hour=3)
    policy = replace(AUTO, price=price, targets=(LatencyTarget(metric=Metric.TTFT, seconds=1.0),))
    load = report(running=4, waiting=30, last_step_age_s=0.1, waiting_ages=Sketch.of([2.0] * 30))
    status = told(serving(ready("a", load)), policy)
    said = condition(status, "SLOMet")
    assert said is not None
    assert said.message.endswith("; the budget of 3 an hour pays for no more than 1 replicas")
    assert status.scaling is not None
    assert status.scaling.limited_by == ("budget",)
    assert status.scaling.message.endswith("(limited by budget)")


def test_a_target_missed_is_told_with_numbers() -> None:
    policy = replace(AUTO, targets=(LatencyTarget(metric=Metric.TTFT, seconds=1.0),))
    load = report(running=4, waiting=30, last_step_age_s=0.1, waiting_ages=Sketch.of([2.0] * 30))
    said = condition(told(serving(ready("a", load)), policy), "SLOMet")
    assert said is not None
    assert (said.status, said.reason) == ("False", "SLOMissed")
    assert "30 of 30" in said.message


@pytest.mark.parametrize(
    ("observed", "written_s_ago", "due"),
    [
        pytest.param(serving(ready("a", report())), 5.0, False, id="nothing changed"),
        pytest.param(serving(ready("a", report())), 500.0, False, id="nothing changed for long"),
        pytest.param(serving(ready("a", report(running=2, last_step_age_s=0.1))), 5.0, False, id="figures, and young"),
        pytest.param(serving(ready("a", report(running=2, last_step_age_s=0.1))), 30.0, True, id="figures, and old"),
        pytest.param(serving(ready("a", report()), pending("b")), 5.0, True, id="a decision: another number"),
        pytest.param(serving(pending("a")), 5.0, True, id="a condition"),
    ],
)
def test_when_a_status_is_written(observed: ServiceObserved, written_s_ago: float, due: bool) -> None:
    written = told(serving(ready("a", report())))
    assert is_write_due(written, told(observed, previous=written), NOW - written_s_ago, NOW) is due


def test_a_status_fits_the_object_and_reads_back() -> None:
    observed = serving(*(ready(f"pod-{n}", report(running=3, last_step_age_s=0.1)) for n in range(50)))
    policy = replace(AUTO, maximum=60, targets=tuple(LatencyTarget(metric=m, seconds=1.0) for m in Metric))
    text = told(observed, policy).model_dump_json(by_alias=True, exclude_none=True)
    assert len(text) < 8192
    assert resource.InferenceServiceStatus.model_validate_json(text).ready == "50/50"


def test_the_policy_of_a_spec() -> None:
    spec = resource.read_spec(
        {
            "model": {"source": "file:///m.gguf"},
            "engine": {"maxRunningRequests": 8},
            "scaling": {
                "minReplicas": 1,
                "maxReplicas": 3,
                "targets": {"queueDepth": 2, "ttft": {"p99": "1500ms"}},
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 45, "selectPolicy": "Min"}},
            },
        }
    )
    policy = policy_of(spec)
    assert (policy.mode, policy.minimum, policy.maximum, policy.queue_depth, policy.slots) == (Mode.AUTO, 1, 3, 2, 8)
    assert policy.targets == (LatencyTarget(metric=Metric.TTFT, seconds=1.5),)
    assert (policy.down.window_s, policy.down.strictest, policy.up.window_s) == (45.0, True, 0.0)
    assert policy_of(resource.read_spec({"model": {"source": "file:///m"}, "replicas": 0})).replicas == 0
    assert policy_of(resource.read_spec({"model": {"source": "file:///m"}})).replicas == 1
