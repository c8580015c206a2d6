"""Schedules and budgets over minutes: ready when the peak begins, down by prediction at its end, never over budget."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from simulated_fleet import EPOCH, Fleet, Look
from tidegate_operator.decide.scaling_memory import Learned, Memory
from tidegate_operator.decide.scaling_policy import Direction, Price, Rate, ScalingPolicy, Schedule
from tidegate_operator.resource import parse_cron

BEGINS_S = 400.0
"""The fleet's time 0 is 22:13:20 UTC, and the peak begins at 22:20."""
PEAK = Schedule(name="peak", cron=parse_cron("20 22 * * *"), time_zone="UTC", duration_s=600.0, minimum=4, maximum=None)
ONE_A_MINUTE = Direction(window_s=60.0, rates=(Rate(period_s=60.0, pods=1),))
POLICY = ScalingPolicy(minimum=1, maximum=8, queue_depth=2, down=ONE_A_MINUTE, schedules=(PEAK,))


def first(looks: list[Look], replicas: int) -> float:
    """The second from which so many are ready."""
    return next(look.at for look in looks if look.ready >= replicas)


def test_the_fleets_clock_is_where_the_cases_think_it_is() -> None:
    assert datetime.fromtimestamp(EPOCH + BEGINS_S, UTC).strftime("%H:%M:%S") == "22:20:00"


@pytest.mark.parametrize("cold_start", [20.0, 90.0, 180.0])
def test_capacity_is_up_when_the_peak_begins_and_not_long_before(cold_start: float) -> None:
    learned = Memory(learned=Learned(cold_starts_s=(cold_start,) * 3))
    fleet = Fleet(POLICY, lambda t: 0.2, cold_start_s=cold_start, memory=learned)
    looks = fleet.run(BEGINS_S + 60)
    up = first(looks, 4)
    assert BEGINS_S - 2 <= up <= BEGINS_S + 2, "within a look of the time"
    started = next(look for look in looks if look.decision.replicas == 4)
    assert (started.decision.reason, started.decision.limited_by) == ("Scheduled", ("schedule peak",))


def test_a_peak_that_comes_at_its_time_meets_no_queue() -> None:
    learned = Memory(learned=Learned(cold_starts_s=(90.0,)))

    def rate(t: float) -> float:
        return 6.0 if BEGINS_S + 2 <= t < BEGINS_S + 600 else 0.2

    with_schedule = Fleet(POLICY, rate, cold_start_s=90.0, memory=learned)
    without = Fleet(replace(POLICY, schedules=()), rate, cold_start_s=90.0, memory=learned)
    assert max(look.waiting for look in with_schedule.run(600)) <= 8
    assert max(look.waiting for look in without.run(600)) > 100


def test_at_the_end_it_goes_down_by_prediction_one_a_minute_and_not_at_once() -> None:
    fleet = Fleet(POLICY, lambda t: 0.2, cold_start_s=20.0)
    looks = fleet.run(1600)
    ends = BEGINS_S + 600
    assert all(look.decision.replicas == 4 for look in looks if BEGINS_S <= look.at < ends)
    numbers = [look.decision.replicas for look in looks if look.at >= ends]
    assert numbers[-1] == 1
    assert all(before - after in (0, 1) for before, after in itertools.pairwise(numbers))
    steps = [look.at for look, after in itertools.pairwise(looks) if look.decision.replicas > after.decision.replicas]
    assert all(b - a >= 60 for a, b in itertools.pairwise(steps))


def test_load_that_stays_after_the_end_keeps_its_replicas() -> None:
    fleet = Fleet(POLICY, lambda t: 5.0 if t > BEGINS_S else 0.2, cold_start_s=20.0)
    looks = fleet.run(2000)
    assert min(look.decision.replicas for look in looks if look.at >= BEGINS_S) >= 3, "5 requests/s need three"
    assert max(look.waiting for look in looks if look.at > BEGINS_S) <= 12


def test_a_budget_is_never_exceeded_and_says_when_it_binds() -> None:
    price = Price(per_replica_hour=2.5, max_per_hour=8.0)
    fleet = Fleet(replace(POLICY, schedules=(), price=price), lambda t: 20.0 if t > 60 else 0.2, cold_start_s=20.0)
    looks = fleet.run(400)
    assert max(look.decision.replicas for look in looks) == 3
    binding = [look for look in looks if "budget" in look.decision.limited_by]
    assert binding
    assert "limited by budget" in binding[-1].decision.message
