"""Minutes of recorded traffic, leapt over and step by step, on engines that were measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripted_policy import Scripted
from tidegate_lab.simulate.engine import ENGINES
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Mode, Scenario
from tidegate_lab.traffic.named import named
from tidegate_lab.traffic.shape import cut


@pytest.mark.parametrize(
    ("trace", "start", "engine", "replicas", "preempts"),
    [
        ("azure-conv", 600.0, "rtx4090-llama-8b", 2, False),
        ("azure-code", 1200.0, "rtxpro6000-llama-8b", 1, False),
        ("servegen-24h", 50_000.0, "rtx4090-llama-8b", 2, True),
    ],
)
def test_a_minute_of_recorded_traffic_comes_out_the_same_in_both_modes(
    trace: str, start: float, engine: str, replicas: int, preempts: bool
) -> None:
    scenario = Scenario(
        trace=cut(named(trace), start, 60.0),
        engine=ENGINES[engine],
        cold_start=ColdStart(median_s=20.0),
        first_replicas=replicas,
        settle_s=20.0,
    )
    plan = ((0.0, replicas), (15.0, replicas + 1))
    leapt = simulate(scenario, Scripted(plan=plan, wants_sketches=False))
    stepped = simulate(replace(scenario, mode=Mode.EXACT), Scripted(plan=plan, wants_sketches=False))
    np.testing.assert_array_equal(leapt.finished_at, stepped.finished_at)
    assert leapt.attainment == stepped.attainment
    assert leapt.replica_hours == stepped.replica_hours
    assert (leapt.preemptions > 0) is preempts
    assert np.isfinite(leapt.finished_at).any()
