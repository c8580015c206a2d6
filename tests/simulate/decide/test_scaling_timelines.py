"""A fleet in virtual time under one `decide`: what the number of replicas does over minutes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from simulated_fleet import Fleet, Look
from tidegate_operator.decide.scaling_data import DataState
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import Direction, LatencyTarget, Metric, ScalingPolicy
from tidegate_operator.observed import GatewayFacts, ReplicaFacts

MINUTE = Direction(window_s=60.0)


def policy(
    *, minimum: int = 1, maximum: int = 40, down: Direction = MINUTE, targets: tuple[LatencyTarget, ...] = ()
) -> ScalingPolicy:
    return ScalingPolicy(minimum=minimum, maximum=maximum, queue_depth=2, down=down, targets=targets)


def changes(looks: Sequence[Look]) -> list[tuple[int, int]]:
    """(second, replicas) at every change."""
    return [
        (round(look.at), look.decision.replicas)
        for before, look in itertools.pairwise(looks)
        if before.decision.replicas != look.decision.replicas
    ]


def highest(looks: Sequence[Look]) -> int:
    return max(look.decision.replicas for look in looks)


def turns(looks: Sequence[Look]) -> int:
    """How often the number changed direction."""
    numbers = [look.decision.replicas for look in looks]
    steps = [b - a for a, b in itertools.pairwise(numbers) if a != b]
    return sum(1 for a, b in itertools.pairwise(steps) if (a > 0) != (b > 0))


def between(start: float, end: float, rate: float) -> Callable[[float], float]:
    return lambda t: rate if start <= t < end else 0.0


def test_hundred_requests_a_second_on_replicas_that_do_ten_ask_for_thirteen_not_for_five_hundred() -> None:
    fleet = Fleet(policy(maximum=1000), between(10, 1e9, 100.0), slots=10, tokens_per_s=100, tokens=10, cold_start_s=60)
    looks = fleet.run(300)
    assert 11 <= highest(looks) <= 13
    assert looks[-1].ready == highest(looks)


@pytest.mark.parametrize("shared", [False, True], ids=["slots are parallel", "slots share one processor"])
@pytest.mark.parametrize("rate", [3.0, 6.0, 12.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_step_up_does_not_overshoot_by_more_than_a_fifth_and_one(rate: float, shared: bool, seed: int) -> None:
    fleet = Fleet(policy(), lambda t: rate, cold_start_s=15, shared=shared, drawn=random.Random(seed))
    looks = fleet.run(600)
    ideal = rate * 20 / 40 / looks[0].decision.demand.utilisation
    assert ideal * 0.8 <= highest(looks) <= max(ideal + 1, 1.2 * ideal) + 1e-9 + (ideal % 1 > 0)
    assert turns(looks) <= 1
    tail = looks[-100:]
    assert sum(look.waiting / look.ready for look in tail) / len(tail) <= 2


@pytest.mark.parametrize("replicas", [1, 2, 5, 9])
@pytest.mark.parametrize("rate", [0.5, 1.7, 4.0, 9.0])
def test_evenly_spaced_load_settles_and_then_nothing_moves(rate: float, replicas: int) -> None:
    fleet = Fleet(policy(), lambda t: rate, replicas=replicas)
    assert turns(fleet.run(900)) <= 2, "one way, and back once where capacity was not known"
    assert changes(fleet.run(900)) == []


@pytest.mark.parametrize("seed", range(4))
def test_the_demo_goes_from_one_to_three_and_back_to_one(seed: int) -> None:
    fleet = Fleet(
        policy(maximum=3, down=Direction(window_s=30.0)),
        between(10, 130, 4.0),
        tokens=30,
        cold_start_s=15,
        shared=True,
        drawn=random.Random(seed),
    )
    looks = fleet.run(330)
    assert [n for _, n in changes(looks)] in ([2, 3, 2, 1], [3, 2, 1], [2, 3, 1], [3, 1])
    assert next(t for t, n in changes(looks) if n == 3) <= 40
    assert looks[-1].pods == 1


def test_the_second_step_waits_for_the_first_to_be_ready() -> None:
    """Fault 1: 2, 4, 8, 16 while the new ones load. What a replica does is unknown, since nothing finishes."""
    fleet = Fleet(policy(), lambda t: 2.0, tokens=100_000, cold_start_s=60)
    looks = fleet.run(58)
    assert highest(looks) == 2


def test_requests_behind_an_old_backlog_ask_for_no_more_replicas() -> None:
    fleet = Fleet(policy(), lambda t: 10.0 if t < 60 else 1.0, cold_start_s=60)
    fleet.run(70)
    peak = fleet.replicas
    looks = fleet.run(60)
    assert any(look.waiting > 50 for look in looks)
    assert highest(looks) == peak


Distort = Callable[[float, ReplicaFacts], ReplicaFacts | None]


def silent(facts: ReplicaFacts, since: float, now: float) -> ReplicaFacts:
    return replace(facts, load_age_s=now - since + 0.3, scrape_error="503")


def all_silent(now: float, facts: ReplicaFacts) -> ReplicaFacts:
    return silent(facts, 200, now) if now > 200 else facts


def half_silent(now: float, facts: ReplicaFacts) -> ReplicaFacts:
    return silent(facts, 200, now) if now > 200 and int(facts.uid[-1]) % 2 else facts


def never_heard(now: float, facts: ReplicaFacts) -> ReplicaFacts:
    return replace(facts, load=None, load_age_s=None, scrape_error="connection refused") if now > 200 else facts


@pytest.mark.parametrize(
    ("distort", "state"),
    [
        pytest.param(all_silent, DataState.STALE, id="every pod falls silent"),
        pytest.param(half_silent, DataState.PARTIAL, id="every second pod falls silent"),
        pytest.param(never_heard, DataState.MISSING, id="no pod was ever heard"),
    ],
)
def test_missing_data_is_not_zero_and_holds_the_fleet(distort: Distort, state: DataState) -> None:
    """Fault 2: the load has ended too, and still nothing falls until it is known to have ended."""
    fleet = Fleet(policy(), between(0, 200, 6.0), distort=distort)
    fleet.run(200)
    peak = fleet.replicas
    looks = fleet.run(200)
    assert peak >= 4
    assert {look.decision.replicas for look in looks} == {peak}
    assert {look.decision.data_state for look in looks[10:]} == {state}
    fleet.distort = lambda now, facts: facts
    assert fleet.run(300)[-1].decision.replicas == 1


def test_no_traffic_is_idle_and_gives_the_replicas_back() -> None:
    """Fault 2, the other half: an idle fleet is not held for ever."""
    fleet = Fleet(policy(), lambda t: 0.0, replicas=7)
    looks = fleet.run(200)
    assert looks[-1].decision.data_state is DataState.IDLE
    assert looks[-1].decision.replicas == 1


def test_a_stalled_pod_is_pressure_and_never_idle() -> None:
    """Fault 3: nothing completes, so every p99 is empty."""

    def freeze(now: float, fleet: Fleet) -> None:
        for pod in fleet.pods:
            pod.frozen = now >= 100 and pod.number == 0

    fleet = Fleet(policy(), lambda t: 1.0, replicas=2, before_look=freeze)
    looks = fleet.run(400)
    stalled = [look for look in looks if look.decision.data_state is DataState.STALLED]
    assert stalled
    assert min(look.decision.replicas for look in looks if look.at > 130) >= 2
    assert 2 <= highest(stalled) <= 3, "one in its place, not a climb to the maximum"


def test_pods_that_go_are_forgotten_and_leave_no_wave() -> None:
    """Fault 4: series of deleted pods are still counted."""
    fleet = Fleet(policy(), lambda t: 12.0 if t < 200 else 2.0)
    fleet.run(200)
    looks = fleet.run(600)
    assert turns(looks) == 0
    assert looks[-1].decision.replicas <= 3
    assert {seen.uid for seen in looks[-1].decision.memory.window.seen} == {p.uid for p in fleet.pods}


def test_six_replicas_needed_are_six_replicas_run() -> None:
    """Fault 5: an average per pod where a total is meant."""
    fleet = Fleet(policy(), lambda t: 8.5)
    assert 6 <= fleet.run(400)[-1].decision.replicas <= 7


def test_a_restart_of_a_pod_makes_no_negative_and_no_jump() -> None:
    def restart(now: float, fleet: Fleet) -> None:
        if now == 300:
            fleet.pods[0].restart(now, 5.0)

    fleet = Fleet(policy(), lambda t: 6.0, before_look=restart)
    fleet.run(290)
    before = fleet.replicas
    looks = fleet.run(200)
    assert all(before <= look.decision.replicas <= before + 1 for look in looks)
    assert all(look.decision.demand.arrivals_per_s < 7.5 for look in looks)


def test_a_restart_of_the_operator_moves_nothing_and_only_holds_a_window() -> None:
    restarted, untouched = (Fleet(policy(), between(0, 200, 6.0)) for _ in range(2))
    for fleet in (restarted, untouched):
        fleet.run(220)
    restarted.memory = Memory(learned=restarted.memory.learned)
    assert all(look.decision.replicas == restarted.looks[109].decision.replicas for look in restarted.run(58))
    untouched.run(58)
    ends = [fleet.run(120)[-1].decision.replicas for fleet in (restarted, untouched)]
    assert ends == [1, 1]


def test_a_restart_of_the_operator_under_load_does_not_scale_down() -> None:
    fleet = Fleet(policy(), lambda t: 6.0)
    fleet.run(300)
    before = fleet.replicas
    fleet.memory = Memory(learned=fleet.memory.learned)
    assert {look.decision.replicas for look in fleet.run(300)} == {before}


def test_replicas_that_cannot_start_are_reported_and_not_replaced_by_more() -> None:
    fleet = Fleet(policy(), lambda t: 5.0, broken_from=1)
    looks = fleet.run(600)
    assert highest(looks) <= 4, "what the load needs, had they started"
    assert len(looks[-1].decision.supply.broken) == looks[-1].decision.replicas - 1


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("shared", [False, True], ids=["slots are parallel", "slots share one processor"])
def test_a_target_that_no_number_reaches_does_not_climb(metric: Metric, shared: bool) -> None:
    """Fault 17."""
    target = LatencyTarget(metric=metric, seconds=0.001)
    fleet = Fleet(policy(targets=(target,)), lambda t: 3.0, cold_start_s=15, shared=shared, drawn=random.Random(5))
    looks = fleet.run(900)
    assert highest(looks) <= 6
    assert looks[-1].decision.unattainable
    assert looks[-1].decision.replicas <= 4
    assert turns(looks[100:]) <= 1


def test_a_p99_over_its_target_adds_replicas_until_it_holds() -> None:
    target = LatencyTarget(metric=Metric.TTFT, seconds=1.0)
    wide = replace(policy(targets=(target,)), queue_depth=50)
    fleet = Fleet(wide, lambda t: 3.0, cold_start_s=15, shared=True, drawn=random.Random(5))
    looks = fleet.run(600)
    assert any(look.decision.term == "p99" for look in looks)
    assert 3 <= looks[-1].decision.replicas <= 5
    assert looks[-1].decision.verdicts[0].opinion == "met"
    assert turns(looks) == 0


def test_a_request_held_at_the_gateway_wakes_a_service_at_zero_and_is_not_put_back_to_sleep() -> None:
    """Fault 15: the pod takes two minutes, which is longer than idleness is allowed to last."""
    asleep = ScalingPolicy(
        minimum=0, maximum=5, queue_depth=2, scale_to_zero_after_s=60.0, down=Direction(window_s=30.0)
    )
    held_until = 150.0
    fleet = Fleet(
        asleep,
        lambda t: 10.0 if held_until <= t < held_until + 0.1 else 0.0,
        cold_start_s=120,
        gateway=lambda now: GatewayFacts(held=1 if 20 <= now < held_until else 0, oldest_held_s=max(0.0, now - 20)),
        replicas=0,
    )
    looks = fleet.run(400)
    by_time = {round(look.at): look.decision.replicas for look in looks}
    assert by_time[18] == 0
    assert all(by_time[t] == 1 for t in range(20, 200, 2))
    assert looks[-1].decision.replicas == 0
    assert fleet.pods == []


def test_a_delayed_scrape_does_not_change_where_it_settles() -> None:
    ends = [Fleet(policy(), lambda t: 6.0, report_age_s=age).run(600)[-1].decision.replicas for age in (0.0, 2.0, 6.0)]
    assert max(ends) - min(ends) <= 1
