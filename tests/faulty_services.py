"""A small service with faults in its data, its pods or its cluster, simulated under our own policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.ours import Ours, ours_for
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import EPOCH, ColdStart, Fault, Scenario
from tidegate_lab.traffic.synthetic import Lengths, Stage, stages
from tidegate_lab.traffic.trace import Trace
from tidegate_operator.decide.scaling import decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import Direction, ScalingPolicy
from tidegate_operator.decide.status_conditions import Findings, Said, conditions
from tidegate_operator.observed import ServiceObserved

SMALL = EngineModel(name="small", step=StepModel(20e-3, 0.2e-3, 1e-6), slots=16, kv_tokens=20_000)
"""Carries about 4 requests a second of 200 tokens in and 100 out."""
TALK = Lengths.fixed(200, 100)
WINDOW_S = 120.0
COLD_START_S = 30.0


def traffic(*parts: tuple[float, float], seed: int = 0) -> Trace:
    """(requests per second, seconds) in turn, Poisson."""
    return stages("made", [Stage(rate, seconds) for rate, seconds in parts], TALK, seed=seed)


def service(trace: Trace, *faults: Fault, first: int = 3, minimum: int = 2, maximum: int = 12) -> Scenario:
    return Scenario(
        trace=trace,
        engine=SMALL,
        cold_start=ColdStart(median_s=COLD_START_S),
        first_replicas=first,
        minimum=minimum,
        maximum=maximum,
        faults=faults,
        settle_s=60.0,
    )


@dataclass(kw_only=True)
class Watched:
    """Our own policy with a short window down, and what the status said at each look."""

    policy: ScalingPolicy
    interval_s: float = 5.0
    name: str = "tidegate"
    wants_sketches: bool = True
    memory: Memory = field(default_factory=Memory)
    said: dict[float, dict[str, Said]] = field(default_factory=dict)
    """By the second of the look: the conditions."""

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        decision = decide(self.policy, observed, self.memory, now)
        self.memory = decision.memory
        findings = Findings(policy=self.policy, observed=observed, decision=decision, trouble=None, template_hash=None)
        self.said[now - EPOCH] = {said.type: said for said in conditions(findings)}
        return Choice(replicas=decision.replicas, reason=decision.reason, data_state=str(decision.data_state))


def policy_for(scenario: Scenario, window_s: float = WINDOW_S) -> ScalingPolicy:
    return replace(ours_for(scenario).policy, down=Direction(window_s=window_s))


def watched(scenario: Scenario) -> tuple[Outcome, Watched]:
    policy = Watched(policy=policy_for(scenario))
    return simulate(scenario, policy), policy


def numbers(outcome: Outcome) -> dict[float, int]:
    """Replicas wanted, by the second of the look."""
    return {moment.at: moment.choice.replicas for moment in outcome.moments}


def run(scenario: Scenario, window_s: float = WINDOW_S) -> Outcome:
    return simulate(scenario, Ours(policy=policy_for(scenario, window_s)))
