"""What is kept of a run: the figures that rows and answers are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One simulation in figures."""

    requests: int
    attained: int
    replica_hours: float
    ttft_p99: float | None
    """Seconds; None where more than 1 % never got a first token."""
    tpot_p99: float | None
    reversals_per_hour: float
    changes: tuple[tuple[float, int], ...]
    """Seconds of virtual time, and the replicas wanted from then on; the first is the number it began with."""

    @property
    def attainment(self) -> float:
        return self.attained / self.requests if self.requests else 1.0

    @property
    def most(self) -> int:
        """The highest number that was ever wanted."""
        return max(replicas for _, replicas in self.changes)

    @classmethod
    def of(cls, outcome: Outcome) -> Measured:
        changes = [(0.0, outcome.scenario.first_replicas)]
        for moment in outcome.moments:
            if moment.choice.replicas != changes[-1][1]:
                changes.append((moment.at, moment.choice.replicas))
        return cls(
            requests=len(outcome.scenario.trace),
            attained=int(outcome.attained.sum()),
            replica_hours=outcome.replica_hours,
            ttft_p99=_p99(outcome.ttft),
            tpot_p99=_p99(outcome.tpot),
            reversals_per_hour=outcome.reversals_per_hour,
            changes=tuple(changes),
        )


def _p99(times: NDArray[np.float64]) -> float | None:
    if not len(times):
        return None
    value = float(np.quantile(np.where(np.isnan(times), np.inf, times), 0.99, method="higher"))
    return value if np.isfinite(value) else None
