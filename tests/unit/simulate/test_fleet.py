"""The simulated cluster, over time: what a pod costs, when it is ready, and what becomes of requests when it goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripted_policy import Scripted, drawn_trace, fixed
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import EPOCH, ColdStart, Fault, FaultKind, Routing, Scenario
from tidegate_lab.traffic.trace import Trace
from tidegate_operator.observed import Phase

ENGINE = EngineModel(name="small", step=StepModel(0.01, 0.0001, 0.0), slots=8, kv_tokens=4096)
QUIET = Trace(
    name="quiet",
    at=np.array([1.0]),
    prompt=np.array([10], np.int32),
    output=np.array([10], np.int32),
    seconds=200.0,
)
LONG = Trace(
    name="long answers",
    at=np.array([50.0, 50.5]),
    prompt=np.array([10, 10], np.int32),
    output=np.array([2000, 2000], np.int32),
    seconds=200.0,
)
SCENARIO = Scenario(trace=QUIET, engine=ENGINE, cold_start=ColdStart(median_s=30.0, sigma=0.0))


def phases(policy: Scripted, at: float) -> list[str]:
    return [str(pod.phase) for pod in policy.at(at).replicas]


def test_a_pod_is_ready_one_cold_start_after_it_is_asked_for_and_paid_for_from_its_creation_to_its_end() -> None:
    policy = Scripted(plan=((0.0, 1), (20.0, 3), (100.0, 1)))
    outcome = simulate(SCENARIO, policy)
    assert phases(policy, 20.0) == ["ready"]
    assert phases(policy, 25.0) == phases(policy, 45.0) == ["ready", "starting", "starting"]
    assert phases(policy, 50.0) == ["ready", "ready", "ready"]
    assert policy.at(50.0).replicas[1].created_at == EPOCH + 20
    assert policy.at(50.0).replicas[1].ready_at == EPOCH + 50
    assert phases(policy, 105.0) == ["ready"]
    assert outcome.pod_seconds == pytest.approx(200 + 2 * 80)


def test_nothing_is_paid_for_after_the_trace_and_a_pod_of_before_it_only_from_its_beginning() -> None:
    assert simulate(replace(SCENARIO, first_replicas=2), fixed(2)).pod_seconds == pytest.approx(2 * 200)


def test_cold_starts_are_drawn_by_the_number_of_the_pod_whatever_the_policy() -> None:
    scenario = replace(SCENARIO, cold_start=ColdStart(median_s=30.0, sigma=0.3))
    early, late = Scripted(plan=((0.0, 1), (5.0, 4))), Scripted(plan=((0.0, 1), (50.0, 2), (60.0, 4)))
    simulate(scenario, early)
    simulate(scenario, late)
    took = [
        [pod.ready_at - pod.created_at for pod in policy.at(195.0).replicas if pod.ready_at is not None]
        for policy in (early, late)
    ]
    assert took[0] == pytest.approx(took[1], abs=1.0)
    assert len({round(seconds) for seconds in took[0]}) > 1


def test_a_replica_that_is_not_wanted_any_more_finishes_what_it_has_and_gets_nothing_new() -> None:
    policy = Scripted(plan=((0.0, 2), (60.0, 1)))
    outcome = simulate(replace(SCENARIO, trace=LONG, first_replicas=2), policy)
    assert phases(policy, 65.0) == ["ready", "draining"]
    # 2,000 steps of 10.1 ms from the second request on.
    assert phases(policy, 75.0) == ["ready"]
    assert outcome.lost == 0
    assert outcome.pod_seconds == pytest.approx(200 + 50.5 + 20.2, abs=0.5)


def test_what_is_not_finished_when_the_time_to_drain_is_over_is_lost() -> None:
    scenario = replace(SCENARIO, trace=LONG, first_replicas=2, drain_timeout_s=7.0)
    policy = Scripted(plan=((0.0, 2), (60.0, 1)))
    outcome = simulate(scenario, policy)
    assert outcome.lost == 1
    assert outcome.pod_seconds == pytest.approx(200 + 67)
    assert np.isnan(outcome.finished_at).sum() == 1
    assert outcome.unfinished == outcome.refused == 0


def test_a_pod_that_leaves_waits_for_endpoints_first_and_is_paid_for_meanwhile() -> None:
    policy = Scripted(plan=((0.0, 2), (20.0, 1)))
    scenario = replace(SCENARIO, first_replicas=2, leaving_s=12.5)
    assert simulate(scenario, policy).pod_seconds == pytest.approx(200 + 20 + 12.5)
    assert phases(policy, 30.0) == ["ready", "draining"]
    assert phases(policy, 35.0) == ["ready"]
    busy = simulate(replace(scenario, trace=LONG, leaving_s=5.0), Scripted(plan=((0.0, 2), (60.0, 1))))
    # Its 2,000 steps of 10.1 ms from 50.5 s on outlast the wait, which then costs nothing more.
    assert busy.pod_seconds == pytest.approx(200 + 50.5 + 20.2, abs=0.5)
    # The time to drain begins after the wait, as in a real pod.
    cut = simulate(
        replace(scenario, trace=LONG, drain_timeout_s=2.0, leaving_s=5.0), Scripted(plan=((0.0, 2), (60.0, 1)))
    )
    assert cut.lost == 1
    assert cut.pod_seconds == pytest.approx(200 + 67)


def test_those_that_are_not_ready_go_first_then_the_idlest_then_the_newest() -> None:
    policy = Scripted(plan=((0.0, 2), (40.0, 3), (60.0, 2), (65.0, 1)))
    simulate(replace(SCENARIO, trace=LONG, first_replicas=2), policy)
    names = [pod.name for pod in policy.at(65.0).replicas]
    assert names == ["pod-0", "pod-1"]
    busy = replace(LONG, at=np.array([50.0, 50.5]), output=np.array([10, 2000], np.int32))
    other = Scripted(plan=((0.0, 2), (60.0, 1)))
    simulate(replace(SCENARIO, trace=busy, first_replicas=2), other)
    assert [pod.name for pod in other.at(65.0).replicas] == ["pod-1"]


def test_without_a_node_a_pod_is_pending_and_its_cold_start_begins_when_there_is_room() -> None:
    policy = Scripted(plan=((0.0, 1), (10.0, 3), (60.0, 2), (100.0, 3)))
    simulate(replace(SCENARIO, capacity=2), policy)
    assert phases(policy, 45.0) == ["ready", "ready", "pending"]
    assert policy.at(45.0).replicas[2].scheduled_at is None
    assert policy.at(45.0).replicas[2].unschedulable
    assert phases(policy, 65.0) == ["ready", "ready"]
    fault = Fault(kind=FaultKind.NO_CAPACITY, at=5.0, seconds=45.0)
    late = Scripted(plan=((0.0, 1), (10.0, 2)))
    simulate(replace(SCENARIO, faults=(fault,)), late)
    assert phases(late, 50.0) == ["ready", "starting"]
    assert late.at(80.0).replicas[1].scheduled_at == EPOCH + 50
    assert late.at(80.0).replicas[1].ready_at == EPOCH + 80


def test_requests_that_come_while_nobody_is_ready_are_held_and_go_in_with_the_first() -> None:
    scenario = replace(SCENARIO, trace=LONG, first_replicas=0)
    policy = Scripted(plan=((0.0, 0), (55.0, 1)))
    outcome = simulate(scenario, policy)
    held = policy.at(60.0).gateway
    assert held is not None
    assert (held.held, held.oldest_held_s) == (2, pytest.approx(10.0))
    assert outcome.first_token_at == pytest.approx(85.0 + 0.01 + 20 * 0.0001)
    assert outcome.ttft[0] == pytest.approx(35.012)
    assert policy.at(90.0).gateway.held == 0  # type: ignore[union-attr]


def test_a_crash_loses_what_was_inside_and_the_container_starts_again_as_another_boot() -> None:
    fault = Fault(kind=FaultKind.CRASH, at=55.0)
    policy = fixed(1)
    outcome = simulate(replace(SCENARIO, trace=LONG, faults=(fault,)), policy)
    assert outcome.lost == 2
    pod = policy.at(60.0).replicas[0]
    assert (pod.phase, pod.restarts, pod.ready_at) == (Phase.STARTING, 1, None)
    assert pod.failure is not None
    assert policy.at(60.0).terminations == (pod.failure,)
    before, after = policy.at(50.0).replicas[0], policy.at(90.0).replicas[0]
    assert before.uid == after.uid
    assert before.boot != after.boot
    assert after.ready_at == EPOCH + 85


def test_a_process_that_keeps_crashing_has_failed_until_it_can_start() -> None:
    policy = fixed(1)
    simulate(replace(SCENARIO, faults=(Fault(kind=FaultKind.CRASH, at=55.0, seconds=20.0),)), policy)
    assert [phases(policy, at)[0] for at in (60.0, 70.0, 80.0, 110.0)] == ["failed", "failed", "starting", "ready"]


def test_a_pod_that_somebody_deletes_is_replaced_by_another() -> None:
    policy = fixed(2)
    outcome = simulate(
        replace(SCENARIO, trace=LONG, first_replicas=2, faults=(Fault(kind=FaultKind.POD_GONE, at=55.0, share=0.5),)),
        policy,
    )
    assert [pod.name for pod in policy.at(60.0).replicas] == ["pod-1", "pod-2"]
    assert phases(policy, 60.0) == ["ready", "starting"]
    assert outcome.lost == 1


@pytest.mark.parametrize("routing", Routing)
def test_every_request_is_accounted_for_once_and_the_same_seed_gives_the_same_outcome(routing: Routing) -> None:
    scenario = replace(
        SCENARIO,
        trace=drawn_trace(3, 20_000, 200.0, 60, 60),
        engine=replace(ENGINE, most_queued=40, kv_tokens=400),
        first_replicas=2,
        routing=routing,
        faults=(Fault(kind=FaultKind.CRASH, at=90.0, share=0.5),),
        settle_s=5.0,
        seed=4,
    )
    plan = ((0.0, 3), (60.0, 4), (120.0, 2))
    policy = Scripted(plan=plan)
    outcome = simulate(scenario, policy)
    finished = int((~np.isnan(outcome.finished_at)).sum())
    assert finished + outcome.refused + outcome.lost + outcome.unfinished == 20_000
    assert outcome.refused > 0
    assert outcome.lost > 0
    assert outcome.unfinished >= 0
    assert outcome.preemptions > 0
    again = simulate(scenario, Scripted(plan=plan))
    np.testing.assert_array_equal(outcome.finished_at, again.finished_at)
    assert outcome.moments == again.moments
    assert (
        outcome.first_token_at[~np.isnan(outcome.finished_at)] >= scenario.trace.at[~np.isnan(outcome.finished_at)]
    ).all()


@pytest.mark.parametrize(
    ("routing", "spread"),
    [(Routing.LEAST, (3, 3, 3)), (Routing.ROUND_ROBIN, (3, 3, 3)), (Routing.RANDOM, None)],
)
def test_routing_spreads_requests(routing: Routing, spread: tuple[int, ...] | None) -> None:
    trace = Trace(
        name="nine",
        at=np.arange(9) * 0.001 + 50,
        prompt=np.full(9, 10, np.int32),
        output=np.full(9, 10, np.int32),
        seconds=100.0,
    )
    policy = fixed(3)
    simulate(replace(SCENARIO, trace=trace, first_replicas=3, routing=routing), policy)
    received = tuple(pod.load.counters.received for pod in policy.at(60.0).replicas if pod.load)
    assert sum(received) == 9
    assert received == spread if spread else len(set(received)) > 1
