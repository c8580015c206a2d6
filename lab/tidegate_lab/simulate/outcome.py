"""What came of a simulation: each request's times, the replicas over time, each decision, and the figures of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.scenario import Scenario

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One look of the policy, and the fleet as it truly was then."""

    at: float
    """Virtual seconds."""
    choice: Choice
    """After the policy's own limits."""
    before: int
    """Replicas wanted until then."""
    ready: int
    starting: int
    draining: int
    running: int
    waiting: int
    arrived: int
    """Requests since the look before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Times are virtual seconds; NaN where it never happened (refused, lost in a crash, unfinished at the end)."""

    scenario: Scenario
    policy: str
    first_token_at: Times
    finished_at: Times
    moments: tuple[Moment, ...]
    pod_seconds: float
    """From each pod's creation to its end, summed, up to the trace's end: what is paid for."""
    refused: int = 0
    """Requests that no replica would take, since its queue was full or its cache is too small for them."""
    lost: int = 0
    """Requests that went down with their pod, or were still running when its time to drain was over."""
    preemptions: int = 0

    @property
    def ttft(self) -> Times:
        return np.asarray(self.first_token_at - self.scenario.trace.at)

    @property
    def e2e(self) -> Times:
        return np.asarray(self.finished_at - self.scenario.trace.at)

    @property
    def tpot(self) -> Times:
        """Seconds per token after the first; 0 for answers of one token."""
        tokens = self.scenario.trace.output - 1
        spent = self.finished_at - self.first_token_at
        return np.asarray(np.where(tokens > 0, spent / np.maximum(tokens, 1), np.where(np.isnan(spent), np.nan, 0.0)))

    @property
    def unfinished(self) -> int:
        """Requests that were neither refused nor lost, and had not all their tokens when the simulation ended."""
        return int(np.isnan(self.finished_at).sum()) - self.refused - self.lost

    @property
    def attained(self) -> NDArray[np.bool_]:
        """By request: within every target. What never finished is not."""
        targets = self.scenario.targets
        good = ~np.isnan(self.finished_at)
        for times, limit in ((self.ttft, targets.ttft_s), (self.tpot, targets.tpot_s), (self.e2e, targets.e2e_s)):
            if limit is not None:
                good &= np.nan_to_num(times, nan=np.inf) <= limit
        return np.asarray(good)

    @property
    def attainment(self) -> float:
        """Share of all requests that attained; 1 where there were none."""
        return float(self.attained.mean()) if len(self.scenario.trace) else 1.0

    @property
    def replica_hours(self) -> float:
        return self.pod_seconds / 3600

    @property
    def reversals_per_hour(self) -> float:
        """How often the number of replicas turned from rising to falling or back."""
        changes = [m.choice.replicas - m.before for m in self.moments if m.choice.replicas != m.before]
        turns = sum((one > 0) != (other > 0) for one, other in pairwise(changes))
        return turns / (self.scenario.trace.seconds / 3600) if self.scenario.trace.seconds else 0.0
