"""Does what the oracle plans by add up: work neither made nor lost, windows that keep to their side, early rises?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_lab.simulate.engine import RTX4090_LLAMA_8B, EngineModel, StepModel
from tidegate_lab.simulate.policies.needed import (
    GRID_S,
    FullReplica,
    averaged,
    planned,
    without_gaps,
    work_of_arrivals,
    work_over_time,
)
from tidegate_lab.traffic.trace import Trace


def trace(at: list[float], prompt: int = 1000, output: int = 200, seconds: float | None = None) -> Trace:
    end = seconds if seconds is not None else (max(at) if at else 0.0) + 60.0
    count = len(at)
    return Trace("t", np.sort(np.array(at)), np.full(count, prompt, np.int32), np.full(count, output, np.int32), end)


def test_a_full_replica_is_bounded_by_memory_slots_and_tpot() -> None:
    traffic = trace([0.0, 1.0])
    assert FullReplica.of(RTX4090_LLAMA_8B, traffic, 0.1).batch == pytest.approx(RTX4090_LLAMA_8B.kv_tokens / 1100)
    roomy = EngineModel(name="roomy", step=StepModel(0.01, 1e-4, 0.0), kv_tokens=10**9, slots=64)
    assert FullReplica.of(roomy, traffic, 0.1).batch == 64
    assert FullReplica.of(roomy, traffic, 0.012).batch == pytest.approx(20)
    full = FullReplica.of(roomy, traffic, 0.1)
    assert full.step_s == pytest.approx(0.0164) and full.answer_token_s == pytest.approx(0.0164 / 64)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 500), min_size=1, max_size=50), st.integers(1, 3000))
def test_work_is_spread_but_neither_made_nor_lost(at: list[float], output: int) -> None:
    full = FullReplica.of(RTX4090_LLAMA_8B, trace([0.0], output=output), None)
    took = float(full.answer_s(np.array([float(output)]))[0])
    traffic = trace(at, output=output, seconds=max(at) + took + 2 * GRID_S)
    spread, due = work_over_time(traffic, full), work_of_arrivals(traffic, full)
    assert spread.sum() == pytest.approx(due.sum(), rel=1e-6)
    assert spread.min() > -1e-6


def test_a_window_does_not_look_over_a_border() -> None:
    work = np.array([1.0] * 10 + [11.0] * 10)
    assert averaged(work, 30)[9] == pytest.approx((4 * 1 + 3 * 11) / 7)
    bordered = averaged(work, 30, borders=(50.0,))
    assert set(bordered[:10]) == {1.0} and set(bordered[10:]) == {11.0}


@pytest.mark.parametrize(
    ("replicas", "gap_s", "filled"),
    [
        pytest.param([3, 1, 3], 5, [3, 3, 3], id="a valley as short as the gap"),
        pytest.param([3, 1, 1, 3], 5, [3, 1, 1, 3], id="a longer one stays"),
        pytest.param([3, 1, 2, 3], 10, [3, 3, 3, 3], id="an uneven one"),
        pytest.param([1, 3, 1], 60, [1, 3, 1], id="what lies at an end is no valley"),
        pytest.param([2, 2], 0, [2, 2], id="no gap"),
    ],
)
def test_valleys_are_filled(replicas: list[int], gap_s: float, filled: list[int]) -> None:
    assert without_gaps(np.array(replicas), gap_s).tolist() == filled


def test_rises_are_asked_for_early_and_falls_when_they_fall() -> None:
    work = np.array([0.7] * 20 + [2.1] * 20 + [0.7] * 20)
    plan = planned(work, 0.7, lead_s=30, gap_s=0)
    assert plan.at == (0.0, 70.0, 200.0) and plan.replicas == (1, 3, 1)
    assert plan.peak == 3 and plan.when(69.9) == 1 and plan.when(70) == 3
    assert planned(work, 0.7, lead_s=0, gap_s=100).replicas == (1, 3, 1)
    assert planned(work[::-1], 1.05, lead_s=0, gap_s=0).replicas == (1, 2, 1)
