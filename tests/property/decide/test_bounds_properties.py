"""Bounds of schedules and budgets, whatever they are: they never cross, and every decision keeps them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from load_reports import NOW, ready, report, seen
from random_services import memories
from tidegate_operator.decide.bounds import bounded
from tidegate_operator.decide.budget import affordable
from tidegate_operator.decide.scaling import decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import Mode, Price, ScalingPolicy, Schedule
from tidegate_operator.resource import parse_cron

CRONS = ["0 * * * *", "*/7 3-20 * * *", "0 8 * * mon-fri", "30 1 1 1 *"]
schedules = st.builds(
    Schedule,
    name=st.sampled_from(["a", "b", "c"]),
    cron=st.sampled_from(CRONS).map(parse_cron),
    time_zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
    duration_s=st.floats(60, 7 * 86_400),
    minimum=st.none() | st.integers(1, 40),
    maximum=st.none() | st.integers(1, 40),
)


@st.composite
def policies(draw: st.DrawFn) -> ScalingPolicy:
    minimum = draw(st.integers(1, 10))
    price = st.builds(Price, per_replica_hour=st.floats(0, 1e6), max_per_hour=st.none() | st.floats(0.01, 1e9))
    return ScalingPolicy(
        mode=draw(st.sampled_from([Mode.AUTO, Mode.ADVISORY, Mode.EXTERNAL])),
        replicas=draw(st.integers(1, 40)),
        minimum=minimum,
        maximum=draw(st.integers(minimum, 40)),
        schedules=tuple(draw(st.lists(schedules, max_size=4))),
        price=draw(st.none() | price),
    )


moments = st.floats(NOW - 3e7, NOW + 3e7)


@settings(max_examples=150, deadline=None)
@given(policy=policies(), cold_start=st.floats(0, 7200), now=moments)
def test_the_bounds_never_cross_nor_fall_below_the_fewest_nor_rise_above_what_the_money_buys(
    policy: ScalingPolicy, cold_start: float, now: float
) -> None:
    found = bounded(policy, cold_start, now)
    assert policy.minimum <= found.minimum <= found.maximum
    most = affordable(policy.price) if policy.price else None
    if most is not None and found.minimum <= most:
        assert found.maximum <= most
    assert found == replace(bounded(found, cold_start, now), schedules=policy.schedules), "asking twice changes nothing"


@settings(max_examples=60, deadline=None)
@given(
    policy=policies(),
    memory=memories,
    now=moments,
    waiting=st.integers(0, 10_000),
    live=st.integers(1, 40),
    silent=st.booleans(),
)
def test_every_decision_keeps_the_bounds_of_its_moment_and_names_what_binds(
    policy: ScalingPolicy, memory: Memory, now: float, waiting: int, live: int, silent: bool
) -> None:
    load = None if silent else report(running=4, waiting=waiting, last_step_age_s=0.1)
    decision = decide(policy, seen(ready("a", load), wanted=live), memory, now)
    found = bounded(policy, memory.learned.cold_start_s, now)
    assert found.minimum <= decision.recommended <= found.maximum
    if decision.reason == "Scheduled":
        assert found.minimum_by in decision.limited_by
        assert found.minimum_by in decision.message
