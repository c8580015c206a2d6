"""Policies that follow a plan made before: a fixed number, the oracle, and what is unavoidable."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tidegate_operator.observed import ServiceObserved

from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.scenario import EPOCH


@dataclass(frozen=True, slots=True)
class Plan:
    """Replicas from each time on: seconds of virtual time, ascending from 0."""

    at: tuple[float, ...]
    replicas: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.at or self.at[0] != 0 or len(self.at) != len(self.replicas):
            raise ValueError("a plan begins at 0 and has one number for each time")

    def when(self, seconds: float) -> int:
        """The number that holds at this time."""
        return self.replicas[max(0, bisect_right(self.at, seconds) - 1)]

    @property
    def peak(self) -> int:
        return max(self.replicas)


class Planned:
    """Does as the plan says, to the second."""

    interval_s = 5.0
    wants_sketches = False

    def __init__(self, told: Told, name: str, plan: Plan) -> None:
        self.told, self.name, self.plan = told, name, plan

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        return Choice(replicas=self.told.within(self.plan.when(now - EPOCH)))


class Static:
    """The same number always: what is run without an autoscaler."""

    name = "static"
    interval_s = 60.0
    wants_sketches = False

    def __init__(self, told: Told, replicas: int) -> None:
        self.replicas = told.within(replicas)

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        return Choice(replicas=self.replicas)
