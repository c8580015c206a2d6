"""One pod of the simulated cluster, and how long it takes to be ready."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tidegate_operator.observed import ContainerFailure, Phase

from tidegate_lab.simulate.scenario import ColdStart


@dataclass(slots=True, kw_only=True)
class Pod:
    """Times are virtual seconds; the cluster changes them."""

    number: int
    """In order of creation."""
    created_at: float
    phase: Phase = Phase.PENDING
    scheduled_at: float | None = None
    booted_at: float = 0.0
    """When the process that runs now began."""
    ready_at: float | None = None
    leaves_at: float = 0.0
    """Once it drains: no sooner than this, even with nothing left inside."""
    restarts: int = 0
    failure: ContainerFailure | None = None

    @property
    def uid(self) -> str:
        return f"pod-{self.number}"

    @property
    def boot(self) -> str:
        return f"{self.number}-{self.restarts}"

    @property
    def wanted(self) -> bool:
        """Whether it counts as one of the Deployment's replicas."""
        return self.phase is not Phase.DRAINING


def cold_start_s(cold_start: ColdStart, seed: int, number: int, restarts: int) -> float:
    """Drawn by the pod's number, so that the fifth pod takes as long whatever policy asked for it."""
    z = np.random.default_rng((seed, number, restarts)).standard_normal()
    return cold_start.median_s * math.exp(cold_start.sigma * float(z))
