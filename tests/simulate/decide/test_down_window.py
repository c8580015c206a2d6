"""How long fewer replicas must have been enough, where the user asks for no window."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faulty_services import TALK, numbers, run, service, traffic
from tidegate_lab.simulate.ours import ours_for
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.simulate.run import simulate
from tidegate_lab.traffic.synthetic import constant
from tidegate_lab.traffic.trace import Trace
from tidegate_operator.decide.scaling_history import Bucket, History
from tidegate_operator.decide.scaling_limits import with_window
from tidegate_operator.decide.scaling_policy import ADAPTING_DOWN, Direction, ScalingPolicy

BUSY_S = 900.0


@pytest.mark.parametrize(
    ("down", "watched_s", "dispersion", "cold_start_s", "window_s"),
    [
        pytest.param(ADAPTING_DOWN, 1800, 1.0, 30, 120, id="independent users"),
        pytest.param(ADAPTING_DOWN, 1800, 2.25, 30, 180, id="half as irregular again"),
        pytest.param(ADAPTING_DOWN, 1800, 100.0, 30, 300, id="bursts: never longer than five minutes"),
        pytest.param(ADAPTING_DOWN, 1800, 1.0, 180, 180, id="what comes back is there after one cold start"),
        pytest.param(ADAPTING_DOWN, 1800, 1.0, 900, 300, id="a very long cold start"),
        pytest.param(ADAPTING_DOWN, 599, 1.0, 30, 300, id="too little was seen to call it even"),
        pytest.param(ADAPTING_DOWN, 1800, None, 30, 300, id="no model of the replicas yet"),
        pytest.param(Direction(window_s=300), 1800, 1.0, 30, 300, id="a window that the user asked for is kept"),
        pytest.param(Direction(window_s=0), 1800, 100.0, 30, 0, id="none too"),
    ],
)
def test_the_window(
    down: Direction, watched_s: float, dispersion: float | None, cold_start_s: float, window_s: float
) -> None:
    history = History((Bucket(watched_s, 100.0),))
    found = with_window(ScalingPolicy(down=down), history, dispersion, cold_start_s)
    assert found.down.window_s == pytest.approx(window_s)


def left_to_us(trace: Trace, first: int = 4) -> Outcome:
    scenario = service(trace, first=first, minimum=1)
    return simulate(scenario, ours_for(scenario))


def first_fall(outcome: Outcome) -> float:
    """Seconds after the load has ended."""
    return next(m.at for m in outcome.moments if m.at >= BUSY_S and m.choice.replicas < m.before) - BUSY_S


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_even_load_that_falls_gives_replicas_up_after_two_minutes_and_not_at_once(seed: int) -> None:
    trace = traffic((12, BUSY_S), (1.5, 900), seed=seed)
    assert 120 <= first_fall(left_to_us(trace)) <= 250
    asked = run(replace(service(trace, first=4, minimum=1)), 300.0)
    assert left_to_us(trace).replica_hours < asked.replica_hours
    assert left_to_us(trace).attainment >= asked.attainment - 0.001


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bursts_keep_their_replicas_for_five_minutes(seed: int) -> None:
    bursts = [(24.0 if i % 2 else 1.0, 30.0) for i in range(30)]
    trace = traffic(*bursts, (1.0, 900), seed=seed)
    kept = [n for at, n in numbers(left_to_us(trace)).items() if BUSY_S <= at < BUSY_S + 295]
    assert min(kept) >= 6, "24 a second on replicas that carry 4"


def test_under_constant_load_the_shorter_window_turns_nothing() -> None:
    outcome = left_to_us(constant("constant", 10.0, 3600, TALK, seed=4), first=1)
    late = {replicas for at, replicas in numbers(outcome).items() if at > 500}
    assert len(late) == 1
