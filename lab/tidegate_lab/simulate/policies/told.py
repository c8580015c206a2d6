"""What a user tells every autoscaler alike: bounds, targets and the engine that is scaled."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.scenario import Scenario, Targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Bounds of the number of replicas, targets of latency, and the engine (its flags are known to who deploys it)."""

    minimum: int
    maximum: int
    targets: Targets
    engine: EngineModel

    @classmethod
    def of(cls, scenario: Scenario) -> Told:
        return cls(minimum=scenario.minimum, maximum=scenario.maximum, targets=scenario.targets, engine=scenario.engine)

    def within(self, replicas: float) -> int:
        """The nearest whole number that the bounds allow."""
        return int(min(max(replicas, self.minimum), self.maximum))
