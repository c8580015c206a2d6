"""Our own policy: the operator's `decide`, with the memory that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate_operator.decide.scaling import decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.decide.scaling_spec import policy_of
from tidegate_operator.observed import ServiceObserved
from tidegate_operator.resource import InferenceServiceSpec

from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.scenario import Scenario


@dataclass(slots=True, kw_only=True)
class Ours:
    """What the operator would do every interval; nothing in it knows that time is virtual."""

    policy: ScalingPolicy
    interval_s: float = 5.0
    name: str = "tidegate"
    wants_sketches: bool = True
    memory: Memory = field(default_factory=Memory)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        """How many replicas from now on."""
        decision = decide(self.policy, observed, self.memory, now)
        self.memory = decision.memory
        return Choice(
            replicas=decision.replicas,
            reason=decision.reason,
            message=decision.message,
            data_state=str(decision.data_state),
        )


def ours_for(scenario: Scenario, headroom_percent: int | None = None) -> Ours:
    """With the defaults of an InferenceService, and the scenario's bounds and targets."""
    targets = scenario.targets
    asked = {"ttft": targets.ttft_s, "tpot": targets.tpot_s, "e2e": targets.e2e_s}
    spec = InferenceServiceSpec.model_validate(
        {
            "model": {"source": "file:///model"},
            "engine": {"maxRunningRequests": scenario.engine.slots},
            "scaling": {
                "minReplicas": scenario.minimum,
                "maxReplicas": scenario.maximum,
                **({} if headroom_percent is None else {"headroomPercent": headroom_percent}),
                "targets": {name: {"p99": f"{seconds}s"} for name, seconds in asked.items() if seconds is not None},
            },
        }
    )
    return Ours(policy=policy_of(spec), interval_s=scenario.scrape_interval_s)
