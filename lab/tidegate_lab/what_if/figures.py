"""An outcome in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds, of requests that have the latency at all; by nearest rank, nothing interpolated."""

    p50: float
    p95: float
    p99: float
    target: float | None = None
    within: float = 1.0
    """Share of requests that hold the target; what never came does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the command prints. A latency that no request has is None."""

    requests: int
    attainment: float
    ttft: Latency | None
    tpot: Latency | None
    e2e: Latency | None
    refused: int
    lost: int
    unfinished: int
    preemptions: int
    generated_tokens: int
    replica_hours: float
    mean_replicas: float
    most_replicas: int
    """Ready at a look."""
    changes_per_hour: float
    reversals_per_hour: float
    """Changes of direction."""

    @classmethod
    def of(cls, outcome: Outcome) -> Figures:
        """Sum up."""
        trace, moments = outcome.scenario.trace, outcome.moments
        hours = trace.seconds / 3600
        finished = ~np.isnan(outcome.finished_at)
        targets = outcome.scenario.targets
        return cls(
            requests=len(trace),
            attainment=outcome.attainment,
            ttft=_latency(outcome.ttft, targets.ttft_s),
            tpot=_latency(outcome.tpot[trace.output > 1], targets.tpot_s),
            e2e=_latency(outcome.e2e, targets.e2e_s),
            refused=outcome.refused,
            lost=outcome.lost,
            unfinished=outcome.unfinished,
            preemptions=outcome.preemptions,
            generated_tokens=int(trace.output[finished].sum()),
            replica_hours=outcome.replica_hours,
            mean_replicas=outcome.replica_hours / hours if hours else 0.0,
            most_replicas=max((moment.ready for moment in moments), default=0),
            changes_per_hour=sum(m.choice.replicas != m.before for m in moments) / hours if hours else 0.0,
            reversals_per_hour=outcome.reversals_per_hour,
        )


def _latency(times: NDArray[np.float64], target: float | None) -> Latency | None:
    had = times[~np.isnan(times)]
    if not len(had):
        return None
    p50, p95, p99 = np.quantile(had, (0.5, 0.95, 0.99), method="inverted_cdf").tolist()
    within = 1.0 if target is None else float((had <= target).sum() / len(times))
    return Latency(p50=p50, p95=p95, p99=p99, target=target, within=within)
