"""Whether steps are made one by one, by the engine's own scheduler, or leapt over must not matter to anybody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_policy import Scripted, drawn_trace
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Fault, FaultKind, Mode, Routing, Scenario

ENGINES = st.builds(
    EngineModel,
    name=st.just("any"),
    step=st.builds(
        StepModel, a=st.sampled_from((0.005, 0.02)), b=st.sampled_from((0.0, 0.0003)), c=st.sampled_from((0.0, 2e-5))
    ),
    slots=st.integers(1, 12),
    kv_tokens=st.integers(200, 3000),
    block_size=st.sampled_from((1, 7, 16)),
    token_budget=st.integers(4, 120),
    most_queued=st.sampled_from((None, 3, 20)),
)
SCENARIOS = st.builds(
    lambda engine, seed, requests, prompt, output, routing, first, faults: Scenario(
        trace=drawn_trace(seed, requests, 60.0, prompt, output),
        engine=engine,
        cold_start=ColdStart(median_s=9.0),
        first_replicas=first,
        drain_timeout_s=7.0,
        routing=routing,
        faults=faults,
        seed=seed,
        settle_s=30.0,
    ),
    engine=ENGINES,
    seed=st.integers(0, 1000),
    requests=st.integers(1, 150),
    prompt=st.integers(1, 150),
    output=st.integers(1, 150),
    routing=st.sampled_from(Routing),
    first=st.integers(0, 3),
    faults=st.sampled_from(
        ((), (Fault(kind=FaultKind.CRASH, at=22.0, share=0.5), Fault(kind=FaultKind.COUNTER_RESET, at=30.0)))
    ),
)
PLANS = st.sampled_from((((0.0, 2),), ((0.0, 1), (20.0, 3), (40.0, 1)), ((0.0, 3), (10.0, 0), (30.0, 2))))


@settings(max_examples=60, deadline=None)
@given(scenario=SCENARIOS, plan=PLANS)
def test_an_operator_cannot_tell_the_two_modes_apart(scenario: Scenario, plan: tuple[tuple[float, int], ...]) -> None:
    leapt, stepped = Scripted(plan=plan), Scripted(plan=plan)
    one = simulate(scenario, leapt)
    other = simulate(replace(scenario, mode=Mode.EXACT), stepped)
    np.testing.assert_array_equal(one.first_token_at, other.first_token_at)
    np.testing.assert_array_equal(one.finished_at, other.finished_at)
    assert one.pod_seconds == other.pod_seconds
    assert one.moments == other.moments
    assert leapt.seen == stepped.seen
