"""The number of replicas turns no more often than the load does, and goes no further than the load needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from faulty_services import COLD_START_S, SMALL, TALK, Watched, numbers, policy_for, run, service, traffic
from tidegate_lab.simulate.engine import RTX4090_LLAMA_8B, RTXPRO6000_LLAMA_8B, EngineModel
from tidegate_lab.simulate.fixed import serve_with
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import EPOCH
from tidegate_lab.traffic.named import named
from tidegate_lab.traffic.synthetic import Lengths, Stage, constant, slow_day, stages
from tidegate_lab.traffic.trace import Trace
from tidegate_operator.decide.scaling_memory import Learned, Memory
from tidegate_operator.decide.scaling_spec import learned_from, learned_to
from tidegate_operator.observed import ServiceObserved
from tidegate_operator.resource import InferenceServiceStatus, ScalingStatus

WINDOW_S = 300.0


def reversals(outcome: Outcome, after: float = 0.0) -> int:
    """How often the number turned from rising to falling or back, of changes made from then on."""
    steps = [m.choice.replicas - m.before for m in outcome.moments if m.at >= after and m.choice.replicas != m.before]
    return turns(steps)


def turns(steps: Sequence[float]) -> int:
    return sum((one > 0) != (other > 0) for one, other in pairwise(steps))


def moves_of_load(trace: Trace) -> list[float]:
    """Those of its rate over a cold start and a window by a tenth of the highest or more, each way as often as it is
    met: +, +, - is a rise and a fall."""
    seconds = COLD_START_S + WINDOW_S
    count = np.histogram(trace.at, np.arange(0, trace.seconds + 1, 5.0))[0]
    width = int(seconds / 5)
    rate = np.convolve(count, np.ones(width), "valid") / seconds
    last, moves = float(rate[0]), []
    for value in map(float, rate):
        if abs(value - last) >= 0.1 * rate.max():
            moves.append(value - last)
            last = value
    return moves


def azure() -> Lengths:
    return Lengths.of(named("azure-conv"))


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize(
    ("engine", "rate"),
    [
        pytest.param(SMALL, 1.5, id="one replica, three requests inside"),
        pytest.param(SMALL, 10.0, id="three small replicas"),
        pytest.param(SMALL, 25.0, id="seven small replicas"),
        pytest.param(RTX4090_LLAMA_8B, 10.0, id="an RTX 4090 and recorded lengths, bound by its cache"),
        pytest.param(RTXPRO6000_LLAMA_8B, 12.0, id="an RTX PRO 6000 and recorded lengths"),
    ],
)
def test_constant_load_moves_nothing_for_an_hour_once_it_has_what_it_needs(
    engine: EngineModel, rate: float, seed: int
) -> None:
    """From one replica: the first cold start leaves a queue, which may cost a replica for one window."""
    trace = constant("constant", rate, 3600, TALK if engine is SMALL else azure(), seed=seed)
    outcome = run(replace(service(trace, first=1, minimum=1, maximum=40), engine=engine), WINDOW_S)
    assert reversals(outcome) <= 1
    assert reversals(outcome, after=COLD_START_S + WINDOW_S) == 0


LOADS = {
    "a step of ten times up": lambda: traffic((1.5, 400), (15, 1400), seed=5),
    "a step of ten times down": lambda: traffic((15, 600), (1.5, 1200), seed=6),
    "up and down again, slowly": lambda: slow_day("wave", 2, 16, TALK, seconds=3600, seed=7),
    "bursts with a long time between them": lambda: traffic((3, 900), (14, 700), (3, 900), (14, 700), seed=8),
}


@pytest.mark.parametrize("load", LOADS)
def test_the_number_turns_no_more_often_than_the_load_and_what_its_rises_leave_to_clear(load: str) -> None:
    """What queues during the cold start after a rise is work that comes and goes too."""
    trace = LOADS[load]()
    first = max(1, round(trace.at.searchsorted(60.0) / 60 / 3.5))
    outcome = run(service(trace, first=first, minimum=1, maximum=40), WINDOW_S)
    moves = moves_of_load(trace)
    rises = sum(move > 0 and before <= 0 for before, move in pairwise([0.0, *moves]))
    assert reversals(outcome, after=COLD_START_S) <= turns(moves) + rises


@pytest.mark.parametrize(("low", "high"), [(0.8, 8.0), (1.5, 15.0), (3.0, 30.0)])
def test_a_step_of_ten_times_is_not_overshot_by_more_than_a_fifth_or_one_replica(low: float, high: float) -> None:
    outcome = run(service(traffic((low, 400), (high, 900), seed=5), first=1, minimum=1, maximum=60), WINDOW_S)
    wanted = numbers(outcome)
    settled = wanted[max(wanted)]
    assert max(wanted.values()) <= max(settled + 1, 1.2 * settled)
    then = stages("then", [Stage(high * (1 + policy_for(outcome.scenario).headroom), 600)], TALK, seed=9)
    needed = next(n for n in range(1, 60) if attained(n, then) >= 0.99)
    assert needed <= settled <= needed + 1, "what a fixed number would do with, and one for chance"


def attained(replicas: int, trace: Trace) -> float:
    served = serve_with(replicas, trace, SMALL)
    return float(((served.ttft <= 2.0) & (served.tpot <= 0.1)).mean())


@dataclass(kw_only=True)
class Restarted(Watched):
    """The process of the operator begins anew at a time, with what the status kept."""

    at: float
    learned: list[Learned] = field(default_factory=list)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        if now - EPOCH == self.at:
            self.memory = Memory(learned=through_the_status(self.memory.learned))
        self.learned.append(self.memory.learned)
        return super().choose(observed, now)


def through_the_status(learned: Learned) -> Learned:
    scaling = ScalingStatus(desired=1, current=1, reason="Steady", learned=learned_to(learned))
    return learned_from(InferenceServiceStatus(scaling=scaling))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(10, 900)], id="constant load"),
        pytest.param([(10, 300), (2, 600)], id="load that has just fallen"),
        pytest.param([(4, 290), (14, 610)], id="load that has just risen"),
        pytest.param([(10, 250), (0, 650)], id="no load any more"),
    ],
)
def test_a_restart_of_the_operator_holds_for_one_window_and_changes_nothing_else(
    parts: list[tuple[float, float]],
) -> None:
    scenario = service(traffic(*parts, seed=2), first=3)
    window_s, at = 120.0, 310.0
    policy = policy_for(scenario, window_s)
    plain = numbers(simulate(scenario, Watched(policy=policy)))
    again = numbers(simulate(scenario, Restarted(policy=policy, at=at)))
    assert {t: n for t, n in again.items() if t < at} == {t: n for t, n in plain.items() if t < at}
    before = plain[at - 5]
    assert min(n for t, n in again.items() if at <= t < at + window_s) >= before
    assert {t: (n, plain[t]) for t, n in again.items() if t >= at + window_s + 10 and abs(n - plain[t]) > 1} == {}
    last = max(plain)
    assert again[last] == plain[last]


def test_bursts_that_return_are_remembered_and_forgotten_within_hours() -> None:
    """Replicas that are wanted back soon after they were given up: each return costs a cold start of late requests."""
    scenario = service(traffic(*((2, 450), (16, 150)) * 5, (2, 3600), seed=4), first=1, minimum=1, maximum=20)
    policy = Restarted(policy=policy_for(scenario), at=-1.0)
    outcome = simulate(scenario, policy)
    looks = [m.at for m in outcome.moments]
    held = dict(zip(looks, (learned.hold_s for learned in policy.learned), strict=False))
    assert held[600.0] == 0, "one burst is none that returns"
    assert held[3000.0] >= 600, "as long as from one burst to the next"
    assert held[3000.0 + 3500] <= 0.7 * held[3000.0], "what is not seen again fades"
    at, good = outcome.scenario.trace.at, outcome.attained
    first, last = (good[(at >= start) & (at < start + 150)].mean() for start in (450.0, 4 * 600 + 450.0))
    assert last > first
    assert numbers(outcome)[max(looks)] <= 2


def test_asked_again_with_the_same_facts_nothing_is_added_twice() -> None:
    """Fault 18: two processes that act on one service, or one that looks twice, double the number at every tick."""

    @dataclass(kw_only=True)
    class Twice(Watched):
        asked: int = 0

        def choose(self, observed: ServiceObserved, now: float) -> Choice:
            first = super().choose(observed, now)
            assert observed.deployment is not None
            done = replace(observed, deployment=replace(observed.deployment, replicas=first.replicas))
            again = super().choose(done, now)
            assert again.replicas == first.replicas
            self.asked += 1
            return again

    scenario = service(traffic((2, 200), (16, 200), seed=4), first=1)
    policy = Twice(policy=policy_for(scenario))
    outcome = simulate(scenario, policy)
    assert policy.asked > 80
    assert max(numbers(outcome).values()) >= 4
