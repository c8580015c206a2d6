"""Whether a p99 target holds, asked so that chance does not answer: act on the share over target, report the p99."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tidegate_operator.decide.scaling_memory import Latencies, Tick
from tidegate_operator.decide.scaling_policy import LatencyTarget, Metric
from tidegate_operator.observed import Sketch

ALLOWED_SHARE = 0.01
FEWEST_SAMPLES = 20
_Z = 2.33
"""One-sided 99 %."""


class Opinion(StrEnum):
    """What the samples allow to be said."""

    MET = "met"
    MISSED = "missed"
    NONE = "none"
    """Too few samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target, judged."""

    target: LatencyTarget
    samples: int
    over: int
    lately_over: int
    """Of the last twenty seconds, and those that wait now: 0 where the trouble is past."""
    surely_over: float
    """Lower bound of the share over the target."""
    p99_s: float | None
    fastest_s: float | None
    """p10: what a request takes where it hardly waits."""
    opinion: Opinion

    @property
    def share(self) -> float:
        return self.over / self.samples if self.samples else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Requests not finished that can be judged already."""

    waiting_ages: Sketch
    """Of those that came after the newest replica was ready."""
    running_tpot: Sketch


def judge(target: LatencyTarget, ticks: tuple[Tick, ...], lately_since: float, in_flight: InFlight) -> Verdict:
    """Compare what the newest replica cannot be blamed for with one target.

    A request that still waits counts once it is past the target, and not before.
    """
    parts = [(tick.at > lately_since, of_metric(tick.fresh, target.metric)) for tick in ticks]
    finished = Sketch.merged(part for _, part in parts)
    samples, over = finished.count, finished.count_above(target.seconds)
    before = sum(part.count_above(target.seconds) for lately, part in parts if not lately)
    if target.metric is Metric.TTFT:
        late = in_flight.waiting_ages.count_above(target.seconds)
        samples, over = samples + late, over + late
    elif target.metric is Metric.TPOT:
        samples += in_flight.running_tpot.count
        over += in_flight.running_tpot.count_above(target.seconds)
    lower = lower_bound(over, samples)
    if samples < FEWEST_SAMPLES:
        opinion = Opinion.NONE
    else:
        opinion = Opinion.MISSED if lower > ALLOWED_SHARE else Opinion.MET
    return Verdict(
        target=target,
        samples=samples,
        over=over,
        lately_over=over - before,
        surely_over=lower,
        p99_s=finished.quantile(0.99),
        fastest_s=finished.quantile(0.1),
        opinion=opinion,
    )


def of_metric(latencies: Latencies, metric: Metric) -> Sketch:
    """The sketch of one metric."""
    return {Metric.TTFT: latencies.ttft, Metric.TPOT: latencies.tpot, Metric.E2E: latencies.e2e}[metric]


def over_window(ticks: tuple[Tick, ...]) -> Latencies:
    """The window's samples of all replicas, merged (averaging quantiles would hide the slow replica)."""
    return Latencies.merged(tuple(t.latencies for t in ticks))


def lower_bound(over: int, samples: int) -> float:
    """Wilson's lower bound of a share, one-sided 99 %: one miss in twenty gives 0.9 %, two give 2.3 %."""
    if samples <= 0 or over <= 0:
        return 0.0
    share, z2 = over / samples, _Z * _Z
    centre = share + z2 / (2 * samples)
    half = _Z * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples * samples))
    return max(0.0, (centre - half) / (1 + z2 / samples))
