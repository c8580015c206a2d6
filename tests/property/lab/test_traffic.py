"""Traffic made by recipe or of other traffic: whatever is asked, it is in order, within its time, and of its rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_lab.traffic.shape import at_times_the_rate, cut
from tidegate_lab.traffic.synthetic import Lengths, Stage, constant, on_off, slow_day, stages
from tidegate_lab.traffic.trace import Trace

PAIRS = Lengths(np.array([10, 20, 30], np.int32), np.array([1, 2, 3], np.int32))
some_stage = st.builds(Stage, st.floats(0.0, 50.0), st.floats(1.0, 120.0))


def holds(trace: Trace) -> None:
    assert len(trace.at) == len(trace.prompt) == len(trace.output)
    assert (np.diff(trace.at) >= 0).all()
    assert not len(trace) or (trace.at[0] >= 0 and trace.at[-1] <= trace.seconds)
    assert (trace.prompt == trace.output * 10).all()  # each prompt kept its own answer


@settings(max_examples=60, deadline=None)
@given(
    st.lists(some_stage, min_size=1, max_size=5),
    st.floats(0.0, 8.0),
    st.integers(0, 9),
)
def test_stages_are_in_order_and_repeatable(parts: list[Stage], cv: float, seed: int) -> None:
    trace = stages("x", parts, PAIRS, cv=cv, seed=seed)
    holds(trace)
    assert trace.seconds == pytest.approx(sum(part.seconds for part in parts))
    assert (trace.at == stages("x", parts, PAIRS, cv=cv, seed=seed).at).all()


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 6.0), st.integers(0, 9))
def test_times_the_rate_keeps_the_time_and_multiplies_the_requests(factor: float, seed: int) -> None:
    trace = constant("x", 30.0, 100.0, PAIRS, seed=seed)
    more = at_times_the_rate(trace, factor, seed)
    holds(more)
    assert more.seconds == trace.seconds
    # Whole copies are exact; the share of the last one has a binomial's spread, five deviations of it here.
    assert abs(len(more) - factor * len(trace)) <= 5 * (len(trace) * 0.25) ** 0.5


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0, 99.0), st.floats(0.5, 200.0))
def test_parts_of_a_trace_are_its_requests(start: float, seconds: float) -> None:
    trace = constant("x", 5.0, 100.0, PAIRS, seed=1)
    part = cut(trace, start, seconds)
    holds(part)
    inside = trace.at[(trace.at >= start) & (trace.at < start + seconds)]
    assert part.at + start == pytest.approx(inside)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 4.0])
def test_gaps_are_as_uneven_as_asked(cv: float) -> None:
    gaps = np.diff(constant("x", 20.0, 4000.0, PAIRS, cv=cv, seed=3).at)
    assert gaps.mean() == pytest.approx(0.05, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.01 + 0.05 * cv)


def test_a_stage_has_its_own_rate() -> None:
    trace = on_off("x", Stage(40, 200), Stage(4, 100), 3, PAIRS, seed=2)
    low = np.count_nonzero((trace.at % 300) < 100)
    assert low == pytest.approx(1200, rel=0.15)
    assert len(trace) - low == pytest.approx(24_000, rel=0.05)


def test_a_slow_day_is_least_at_its_ends_and_most_at_noon() -> None:
    trace = slow_day("x", 1.0, 9.0, PAIRS, seed=2)
    by_hour = np.histogram(trace.at, bins=24, range=(0, 86_400))[0] / 3600
    assert trace.rate == pytest.approx(5.0, rel=0.02)
    assert [by_hour[0], by_hour[23]] == pytest.approx([1, 1], abs=0.2)
    assert by_hour[11:13] == pytest.approx(9, rel=0.03)


def test_twice_the_traffic_is_as_bursty_in_a_minute_but_has_no_twins() -> None:
    trace = on_off("x", Stage(20, 60), Stage(1, 60), 5, PAIRS, seed=4)
    twice = at_times_the_rate(trace, 2.0, seed=1)
    assert len(np.unique(twice.at)) == len(twice)
    minutes = np.histogram(twice.at, bins=10, range=(0, 600))[0]
    assert minutes[1::2].sum() / minutes[::2].sum() == pytest.approx(20, rel=0.5)
    with pytest.raises(ValueError, match="factor 0: give a number above 0"):
        at_times_the_rate(trace, 0)
