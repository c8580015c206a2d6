"""What must not matter in virtual time: how often one looks, what is still to come, and how long a second is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_policy import Scripted, drawn_trace
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Fault, FaultKind, Scenario
from tidegate_lab.traffic.trace import Trace

ENGINE = EngineModel(
    name="small", step=StepModel(0.013, 0.0003, 2e-6), slots=9, kv_tokens=1500, block_size=16, token_budget=90
)
PLAN = ((0.0, 1), (20.0, 3), (60.0, 1), (80.0, 2))


def scenario(seed: int, requests: int) -> Scenario:
    return Scenario(
        trace=drawn_trace(seed, requests, 100.0, 120, 90),
        engine=ENGINE,
        cold_start=ColdStart(median_s=8.0, sigma=0.2),
        drain_timeout_s=6.0,
        faults=(Fault(kind=FaultKind.CRASH, at=50.0, share=0.4),),
        settle_s=20.0,
        seed=seed,
    )


def run(of: Scenario, plan: tuple[tuple[float, int], ...] = PLAN, interval_s: float = 5.0) -> Outcome:
    return simulate(of, Scripted(plan=plan, interval_s=interval_s, wants_sketches=False))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), requests=st.integers(1, 700))
def test_how_often_one_looks_changes_no_request(seed: int, requests: int) -> None:
    seldom = run(scenario(seed, requests))
    often = run(scenario(seed, requests), interval_s=0.5)
    before = seldom.finished_at < 100
    np.testing.assert_array_equal(seldom.first_token_at[before], often.first_token_at[before])
    np.testing.assert_array_equal(seldom.finished_at[before], often.finished_at[before])
    assert seldom.pod_seconds == often.pod_seconds


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), requests=st.integers(1, 700), until=st.floats(1, 99))
def test_what_is_still_to_come_changes_nothing_that_has_been(seed: int, requests: int, until: float) -> None:
    whole = scenario(seed, requests)
    trace = whole.trace
    kept = int(np.searchsorted(trace.at, until))
    begun = Trace(trace.name, trace.at[:kept], trace.prompt[:kept], trace.output[:kept], trace.seconds)
    one, other = run(whole), run(replace(whole, trace=begun))
    past = one.finished_at[:kept] < until
    np.testing.assert_array_equal(past, other.finished_at < until)
    np.testing.assert_array_equal(one.finished_at[:kept][past], other.finished_at[past])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), requests=st.integers(1, 700))
def test_where_everything_takes_twice_as_long_everything_takes_twice_as_long(seed: int, requests: int) -> None:
    one = scenario(seed, requests)
    trace, step = one.trace, ENGINE.step
    other = replace(
        one,
        trace=replace(trace, at=trace.at * 2, seconds=trace.seconds * 2),
        engine=replace(ENGINE, step=StepModel(step.a * 2, step.b * 2, step.c * 2)),
        cold_start=ColdStart(median_s=16.0, sigma=0.2),
        drain_timeout_s=12.0,
        scrape_interval_s=10.0,
        scrape_delay_s=0.6,
        faults=(replace(one.faults[0], at=100.0),),
        settle_s=40.0,
    )
    first = run(one)
    second = run(other, plan=tuple((at * 2, n) for at, n in PLAN), interval_s=10.0)
    # A power of two: no digit is lost.
    np.testing.assert_array_equal(first.first_token_at * 2, second.first_token_at)
    np.testing.assert_array_equal(first.finished_at * 2, second.finished_at)
    assert first.pod_seconds * 2 == second.pod_seconds
