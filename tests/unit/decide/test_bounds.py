"""Which bounds hold at a time: schedules and the budget, and what is said where they bind."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from load_reports import ready, report, seen
from tidegate_operator.decide.bounds import bounded
from tidegate_operator.decide.budget import affordable
from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_memory import Learned, Memory
from tidegate_operator.decide.scaling_policy import Mode, Price, ScalingPolicy, Schedule
from tidegate_operator.observed import ServiceObserved
from tidegate_operator.resource import parse_cron

BASE = ScalingPolicy(minimum=1, maximum=6, slots=4)
SLOW = Memory(learned=Learned(cold_starts_s=(180.0,)))


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def schedule(name: str = "day", cron: str = "0 8 * * mon-fri", hours: float = 10, **bounds: int) -> Schedule:
    return Schedule(name=name, cron=parse_cron(cron), time_zone="Europe/Berlin", duration_s=hours * 3600, **bounds)


DAY = schedule(minimum=4)
NIGHT = schedule("night", "0 22 * * *", 8, maximum=2)
SALE = schedule("sale", "0 9 27 11 *", 24, minimum=8, maximum=12)


@pytest.mark.parametrize(
    ("now", "bounds", "by"),
    [
        pytest.param("2026-11-27T07:50+01:00", (1, 6), ("minReplicas", "maxReplicas"), id="before"),
        pytest.param("2026-11-27T07:56:59+01:00", (1, 6), ("minReplicas", "maxReplicas"), id="a second too early"),
        pytest.param("2026-11-27T07:57+01:00", (4, 6), ("schedule day", "maxReplicas"), id="a cold start before"),
        pytest.param("2026-11-27T08:30+01:00", (4, 6), ("schedule day", "maxReplicas"), id="in it"),
        pytest.param("2026-11-27T12:00+01:00", (8, 12), ("schedule sale", "schedule sale"), id="two: the higher"),
        pytest.param("2026-11-26T17:59:59+01:00", (4, 6), ("schedule day", "maxReplicas"), id="the last second"),
        pytest.param("2026-11-26T18:00+01:00", (1, 6), ("minReplicas", "maxReplicas"), id="over"),
        pytest.param("2026-11-28T08:30+01:00", (8, 12), ("schedule sale", "schedule sale"), id="into the next day"),
        pytest.param("2026-11-29T08:30+01:00", (1, 6), ("minReplicas", "maxReplicas"), id="Sunday"),
        pytest.param("2026-11-26T23:00+01:00", (1, 2), ("minReplicas", "schedule night"), id="a lull"),
        pytest.param("2026-11-26T21:58+01:00", (1, 6), ("minReplicas", "maxReplicas"), id="a lull is not early"),
        pytest.param("2026-07-03T06:30+00:00", (4, 6), ("schedule day", "maxReplicas"), id="summer time"),
    ],
)
def test_bounds_of_schedules(now: str, bounds: tuple[int, int], by: tuple[str, str]) -> None:
    found = bounded(replace(BASE, schedules=(DAY, NIGHT, SALE)), 180.0, at(now))
    assert ((found.minimum, found.maximum), (found.minimum_by, found.maximum_by)) == (bounds, by)


def test_a_minimum_counts_more_than_a_maximum() -> None:
    both = (schedule("a", minimum=4), schedule("b", maximum=2))
    found = bounded(replace(BASE, schedules=both), 0.0, at("2026-11-27T12:00+01:00"))
    assert (found.minimum, found.maximum) == (4, 4)


@pytest.mark.parametrize(
    ("price", "budget", "replicas"),
    [
        pytest.param(2.5, 8.0, 3, id="a rest pays for none"),
        pytest.param(0.1, 0.3, 3, id="binary fractions cost nobody a replica"),
        pytest.param(2.5, 7.5, 3, id="to the cent"),
        pytest.param(2.5, None, None, id="no budget"),
        pytest.param(0.0, 8.0, None, id="free of charge"),
    ],
)
def test_what_a_budget_pays_for(price: float, budget: float | None, replicas: int | None) -> None:
    assert affordable(Price(per_replica_hour=price, max_per_hour=budget)) == replicas


@pytest.mark.parametrize(
    ("budget", "bounds", "by"),
    [
        pytest.param(100.0, (2, 6), "maxReplicas", id="more than is ever needed"),
        pytest.param(12.0, (2, 4), "budget", id="it binds"),
        pytest.param(3.0, (2, 2), "budget", id="never below the minimum"),
    ],
)
def test_a_budget_lowers_the_maximum(budget: float, bounds: tuple[int, int], by: str) -> None:
    policy = replace(BASE, minimum=2, price=Price(per_replica_hour=3.0, max_per_hour=budget))
    found = bounded(policy, 30.0, 0.0)
    assert ((found.minimum, found.maximum), found.maximum_by) == (bounds, by)


def test_a_fixed_number_has_no_bounds() -> None:
    fixed = replace(BASE, mode=Mode.FIXED, schedules=(DAY,), price=Price(per_replica_hour=3.0, max_per_hour=1.0))
    assert bounded(fixed, 30.0, at("2026-11-27T12:00+01:00")) == fixed


def idle(replicas: int = 1) -> ServiceObserved:
    return seen(*(ready(f"p{n}", report()) for n in range(replicas)))


def terms_of(decision: Decision) -> dict[str, int | None]:
    return {term.name: term.replicas for term in decision.terms}


def test_a_schedule_that_adds_replicas_is_the_reason_given() -> None:
    decision = decide(replace(BASE, schedules=(DAY,)), idle(), SLOW, at("2026-11-27T07:58+01:00"))
    assert (decision.replicas, decision.reason, decision.term) == (4, "Scheduled", "schedule")
    assert decision.message.startswith("4 replicas: schedule day asks for 4 at least; ")
    assert decision.limited_by == ("schedule day",)
    assert terms_of(decision)["schedule"] == 4


def test_a_schedule_is_silent_when_it_is_not_its_time() -> None:
    decision = decide(replace(BASE, schedules=(DAY,)), idle(), SLOW, at("2026-11-29T12:00+01:00"))
    assert (decision.replicas, decision.limited_by) == (1, ())
    assert "schedule" not in terms_of(decision)


def test_a_schedule_needs_no_data() -> None:
    silent = seen(ready("a", scrape_error="connection refused"))
    decision = decide(replace(BASE, schedules=(DAY,)), silent, SLOW, at("2026-11-27T12:00+01:00"))
    assert (decision.replicas, decision.reason) == (4, "Scheduled")


def test_advice_and_the_number_for_an_outside_autoscaler_follow_schedules_too() -> None:
    for mode in (Mode.ADVISORY, Mode.EXTERNAL):
        policy = replace(BASE, mode=mode, replicas=1, schedules=(DAY,))
        decision = decide(policy, idle(), SLOW, at("2026-11-27T12:00+01:00"))
        assert (decision.replicas, decision.recommended) == (1, 4)


def test_the_budget_is_a_term_with_its_figures() -> None:
    policy = replace(BASE, price=Price(per_replica_hour=2.5, max_per_hour=8.0))
    decision = decide(policy, idle(), Memory(), 1e9)
    (budget,) = [term for term in decision.terms if term.name == "budget"]
    assert (budget.replicas, budget.message) == (3, "8 an hour pays for 3 replicas at 2.5")
    assert budget.inputs == {"perReplicaHour": 2.5, "maxPerHour": 8.0}
