"""One look: what is asked, in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_reports import NOW, pending, ready, report, seen
from tidegate_operator.decide.capacity import mean_queue, safe_utilisation
from tidegate_operator.decide.latency import Opinion, lower_bound
from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_data import DataState
from tidegate_operator.decide.scaling_limits import limit
from tidegate_operator.decide.scaling_memory import Learned, Memory, Moment, Window
from tidegate_operator.decide.scaling_policy import Direction, LatencyTarget, Metric, Mode, Rate, ScalingPolicy
from tidegate_operator.decide.scaling_victims import deletion_costs
from tidegate_operator.observed import ConditionFacts, ContainerFailure, Phase, ReplicaFacts, ServiceObserved
from tidegate_operator.observed_load import Counters, KvBlocks, Sketches
from tidegate_operator.observed_sketch import Sketch

AUTO = ScalingPolicy(minimum=1, maximum=10, queue_depth=2, slots=4)
BUSY = report(running=4, waiting=1, last_step_age_s=0.1)
QUEUED = report(running=4, waiting=9, last_step_age_s=0.1, oldest_waiting_s=3.0)
STUCK = report(running=4, waiting=3, last_step_age_s=90.0, oldest_unfinished_s=95.0)
IMAGE = ContainerFailure(reason="ImagePullBackOff", message="not found")


def look(observed: ServiceObserved, policy: ScalingPolicy = AUTO, memory: Memory | None = None) -> Decision:
    return decide(policy, observed, memory or Memory(), NOW)


@pytest.mark.parametrize(
    ("observed", "state"),
    [
        pytest.param(seen(ready("a", report())), DataState.IDLE, id="a pod answers and has nothing to do: idle"),
        pytest.param(seen(ready("a", BUSY)), DataState.FLOWING, id="a pod works: flowing"),
        pytest.param(seen(ready("a", STUCK)), DataState.STALLED, id="work and no step for long: stalled"),
        pytest.param(
            seen(ready("a", report(waiting=2, oldest_waiting_s=99.0))), DataState.STALLED, id="never a step: stalled"
        ),
        pytest.param(
            seen(ready("a", report(running=1, last_step_age_s=900.0, oldest_unfinished_s=0.2))),
            DataState.FLOWING,
            id="a step long ago and a request just now: not stalled",
        ),
        pytest.param(seen(ready("a", BUSY), ready("b")), DataState.PARTIAL, id="one of two is silent: partial"),
        pytest.param(seen(ready("a", BUSY, load_age_s=60.0)), DataState.STALE, id="silent for a minute: stale"),
        pytest.param(seen(ready("a")), DataState.MISSING, id="never heard: missing"),
        pytest.param(seen(pending("a")), DataState.NO_REPLICAS, id="nothing ready: no replicas"),
        pytest.param(seen(), DataState.NO_REPLICAS, id="zero pods is none of the others"),
        pytest.param(
            seen(replace(ready("a", BUSY), phase=Phase.DRAINING), ready("b", report())),
            DataState.IDLE,
            id="a draining pod is no load",
        ),
        pytest.param(seen(ready("a", report()), held=3), DataState.FLOWING, id="requests held are load"),
    ],
)
def test_state_of_the_data(observed: ServiceObserved, state: DataState) -> None:
    assert look(observed).data_state is state


@pytest.mark.parametrize(
    ("observed", "policy", "replicas", "reason"),
    [
        pytest.param(seen(ready("a", report())), AUTO, 1, "Steady", id="idle: stays at its minimum"),
        pytest.param(seen(ready("a", QUEUED)), AUTO, 2, "QueueDepth", id="capacity unknown: at most double"),
        pytest.param(
            seen(ready("a", QUEUED), pending("b")), AUTO, 2, "Steady", id="a pending replica is supply: no second step"
        ),
        pytest.param(seen(ready("a", STUCK)), AUTO, 2, "Stalled", id="a stalled pod: one in its place"),
        pytest.param(
            seen(ready("a", STUCK), ready("b", STUCK)), AUTO, 2, "Stalled", id="all stalled: more would stall too"
        ),
        pytest.param(seen(ready("a"), ready("b")), AUTO, 2, "MetricsMissing", id="missing data holds"),
        pytest.param(
            seen(ready("a"), ready("b")),
            replace(AUTO, minimum=4),
            4,
            "MetricsMissing",
            id="the minimum overrides the hold",
        ),
        pytest.param(seen(ready("a"), held=40), AUTO, 7, "RequestsHeld", id="growth at the gateway overrides it too"),
        pytest.param(
            seen(ready("a"), ready("b"), ready("c"), ready("d")),
            replace(AUTO, maximum=3),
            3,
            "MetricsMissing",
            id="a maximum that was lowered counts at once",
        ),
        pytest.param(seen(wanted=0), replace(AUTO, minimum=0), 0, "ScaledToZero", id="zero stays zero"),
        pytest.param(seen(wanted=0), AUTO, 1, "ScaledToZero", id="zero with a minimum of one goes to one"),
        pytest.param(seen(wanted=0, held=1), replace(AUTO, minimum=0), 1, "RequestsHeld", id="one held request wakes"),
        pytest.param(ServiceObserved(), AUTO, 1, "WaitingForReplicas", id="no Deployment yet: the minimum"),
        pytest.param(ServiceObserved(), replace(AUTO, minimum=0), 1, "WaitingForReplicas", id="new: one, to show it"),
        pytest.param(
            seen(ready("a", QUEUED), wanted=1),
            replace(AUTO, mode=Mode.ADVISORY, replicas=1),
            1,
            "AdvisoryQueueDepth",
            id="advisory says and does not do",
        ),
        pytest.param(
            seen(ready("a", QUEUED), wanted=1),
            replace(AUTO, mode=Mode.EXTERNAL, replicas=6),
            6,
            "External",
            id="external: what the scale subresource says",
        ),
        pytest.param(
            seen(ready("a", QUEUED), wanted=3),
            ScalingPolicy(mode=Mode.FIXED, replicas=2, minimum=2, maximum=2),
            2,
            "Fixed",
            id="fixed: what the spec says",
        ),
        pytest.param(seen(ready("a", QUEUED)), replace(AUTO, paused=True), 1, "Paused", id="paused: the live number"),
    ],
)
def test_how_many_and_why(observed: ServiceObserved, policy: ScalingPolicy, replicas: int, reason: str) -> None:
    decision = look(observed, policy)
    assert (decision.replicas, decision.reason) == (replicas, reason)
    assert decision.message
    assert "\n" not in decision.message


@pytest.mark.parametrize(
    ("replica", "pending_ones", "broken_ones"),
    [
        pytest.param(pending("a"), 1, 0, id="starting for five seconds: on its way"),
        pytest.param(pending("a", scheduled_at=NOW - 91), 0, 1, id="starting for three cold starts: broken"),
        pytest.param(
            pending("a", created_at=NOW - 900, scheduled_at=NOW - 5), 1, 0, id="long without a node: no cold start"
        ),
        pytest.param(
            pending("a", created_at=NOW - 900, scheduled_at=None, unschedulable="0/3 nodes"), 0, 1, id="still no node"
        ),
        pytest.param(pending("a", phase=Phase.FAILED, failure=IMAGE), 0, 1, id="image cannot be pulled: broken"),
    ],
)
def test_what_counts_as_supply(replica: ReplicaFacts, pending_ones: int, broken_ones: int) -> None:
    supply = look(seen(replica)).supply
    assert (supply.pending, len(supply.broken)) == (pending_ones, broken_ones)


def test_pods_the_api_server_refuses_are_no_supply() -> None:
    observed = seen(ready("a", report()), wanted=3)
    assert observed.deployment is not None
    refused = replace(
        observed,
        deployment=replace(observed.deployment, replica_failure=ConditionFacts(status="True", reason="FailedCreate")),
    )
    assert (look(observed).supply.pending, look(observed).supply.uncreated) == (2, 0)
    assert (look(refused).supply.pending, look(refused).supply.uncreated) == (0, 2)


def test_a_cold_start_is_learned_from_a_pod_that_was_watched() -> None:
    first = decide(AUTO, seen(pending("a")), Memory(), NOW)
    later = seen(ready("a", report(), created_at=NOW - 65, scheduled_at=NOW - 5, ready_at=NOW + 7))
    learned = decide(AUTO, later, first.memory, NOW + 8).memory.learned
    assert learned.cold_starts_s == (12.0,), "time without a node is no part of it"
    again = decide(AUTO, later, first.memory, NOW + 8).memory
    assert decide(AUTO, later, again, NOW + 10).memory.learned.cold_starts_s == (12.0,)


@pytest.mark.parametrize(
    ("slow", "fast", "opinion"),
    [
        pytest.param(0, 200, Opinion.MET, id="none over: met"),
        pytest.param(1, 19, Opinion.MET, id="one miss in twenty is chance"),
        pytest.param(3, 17, Opinion.MISSED, id="three in twenty are not"),
        pytest.param(5, 5, Opinion.NONE, id="ten samples: no opinion"),
        pytest.param(2, 400, Opinion.MET, id="half a percent: met"),
        pytest.param(20, 400, Opinion.MISSED, id="five percent of many: missed"),
    ],
)
def test_opinions_on_a_p99(slow: int, fast: int, opinion: Opinion) -> None:
    policy = replace(AUTO, targets=(LatencyTarget(metric=Metric.TTFT, seconds=1.0),))
    before = report(uptime_s=600.0)
    after = report(uptime_s=602.0, sketches=Sketches(ttft=Sketch.of([2.0] * slow + [0.1] * fast)))
    memory = decide(policy, seen(ready("a", before)), Memory(), NOW).memory
    verdict = decide(policy, seen(ready("a", after)), memory, NOW + 2).verdicts[0]
    assert (verdict.opinion, verdict.over, verdict.samples) == (opinion, slow, slow + fast)


@pytest.mark.parametrize(
    ("ages", "over"),
    [
        pytest.param([0.2, 0.9], 0, id="before the target a waiting request is no miss"),
        pytest.param([0.2, 1.5, 3.0], 2, id="past it, it is"),
    ],
)
def test_requests_that_still_wait_count_once_they_are_late(ages: list[float], over: int) -> None:
    policy = replace(AUTO, targets=(LatencyTarget(metric=Metric.TTFT, seconds=1.0),))
    load = report(waiting=len(ages), running=4, last_step_age_s=0.1, waiting_ages=Sketch.of(ages))
    assert look(seen(ready("a", load)), policy).verdicts[0].over == over


def test_a_backlog_from_before_the_newest_replica_does_not_count_against_it() -> None:
    policy = replace(AUTO, targets=(LatencyTarget(metric=Metric.TTFT, seconds=1.0),))
    old = report(running=4, waiting=50, last_step_age_s=0.1, oldest_waiting_s=60.0, waiting_ages=Sketch.of([60.0] * 50))
    newest = ready("b", report(boot="b", uptime_s=20.0), ready_at=NOW - 5)
    decision = look(seen(ready("a", old), newest), policy)
    assert decision.verdicts[0].over == 0
    assert (decision.replicas, decision.reason) == (2, "Steady")


def test_load_that_is_known_sizes_at_once() -> None:
    learned = Learned(capacity=40.0, tokens_per_request=20.0)
    memory = Memory(learned=learned)
    for second in range(0, 12, 2):
        load = report(
            uptime_s=600.0 + second,
            running=4,
            waiting=10 * second,
            last_step_age_s=0.1,
            counters=Counters(received=10 * second, finished=2 * second, generated_tokens=40 * second, steps=second),
        )
        decision = decide(replace(AUTO, maximum=50), seen(ready("a", load)), memory, NOW + second)
        memory = decision.memory
    # 10 requests/s of 20 tokens over 40 tokens/s are 5 replicas flat out; at 78 % that makes 7, less for chance.
    assert decision.demand.load == pytest.approx(5.0)
    assert 5 <= decision.replicas <= 7


WINDOW = Window(since=NOW - 1000)


@pytest.mark.parametrize(
    ("wish", "current", "policy", "window", "expected", "by"),
    [
        pytest.param(99, 3, AUTO, WINDOW, 10, ("maxReplicas",), id="never over the maximum"),
        pytest.param(0, 3, replace(AUTO, down=Direction()), WINDOW, 1, ("minReplicas",), id="never under the minimum"),
        pytest.param(8, 3, replace(AUTO, up=Direction(disabled=True)), WINDOW, 3, ("scaleUpDisabled",), id="up is off"),
        pytest.param(
            8,
            3,
            replace(AUTO, up=Direction(rates=(Rate(period_s=60, pods=2),))),
            WINDOW,
            5,
            ("scaleUpRate",),
            id="rate",
        ),
        pytest.param(
            8,
            3,
            replace(AUTO, up=Direction(rates=(Rate(period_s=60, pods=2), Rate(period_s=60, percent=100)))),
            WINDOW,
            6,
            ("scaleUpRate",),
            id="the most generous rate counts",
        ),
        pytest.param(
            8,
            3,
            replace(AUTO, up=Direction(rates=(Rate(period_s=60, pods=2),))),
            replace(WINDOW, changes=(Moment(at=NOW - 30, replicas=2),)),
            3,
            ("scaleUpRate",),
            id="what was added within the period is used up",
        ),
        pytest.param(
            1, 5, AUTO, replace(WINDOW, holds=(Moment(at=NOW - 99, replicas=4),)), 4, ("scaleDownWindow",), id="maximum"
        ),
        pytest.param(1, 5, AUTO, Window(since=NOW - 10), 5, ("scaleDownWindow",), id="a young operator holds a window"),
        pytest.param(
            1,
            5,
            replace(AUTO, down=Direction(rates=(Rate(period_s=60, pods=1),))),
            WINDOW,
            4,
            ("scaleDownRate",),
            id="one at a time down",
        ),
        pytest.param(3, 3, AUTO, WINDOW, 3, (), id="nothing to limit"),
    ],
)
def test_limits(
    wish: int, current: int, policy: ScalingPolicy, window: Window, expected: int, by: tuple[str, ...]
) -> None:
    limited = limit(wish, current, policy, window, NOW)
    assert (limited.replicas, limited.by) == (expected, by)


def test_the_idlest_and_coldest_goes_first() -> None:
    replicas = (
        ready("busy", report(running=3)),
        ready("warm", report(kv_blocks=KvBlocks(total=9, used=5))),
        ready("cold", report()),
        ready("old-template", report(running=4), current=False),
        pending("starting"),
    )
    assert [c.name for c in deletion_costs(replicas)] == ["pod-old-template", "pod-cold", "pod-warm", "pod-busy"]


def test_one_miss_in_twenty_is_not_surely_over_one_percent() -> None:
    assert lower_bound(1, 20) < 0.01 < lower_bound(2, 20)
    assert lower_bound(0, 20) == 0.0


def test_a_queue_grows_with_use_and_is_endless_when_full() -> None:
    assert mean_queue(1, 0.5) == pytest.approx(0.5)
    assert mean_queue(4, 0.8) == pytest.approx(2.386, abs=1e-3)
    assert mean_queue(4, 1.0) == float("inf")
    assert safe_utilisation(4, 2) == pytest.approx(0.78, abs=0.01)
    assert safe_utilisation(64, 2) == pytest.approx(0.887, abs=1e-3)
    assert safe_utilisation(256, 20) == 0.9
