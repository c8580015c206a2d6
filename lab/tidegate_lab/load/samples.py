"""Quantiles of samples as they are: exact, by nearest rank, nothing interpolated or put into buckets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds of `count` samples; a quantile is always one of the samples, and p99 of fewer than 100 is the maximum."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples: Iterable[float]) -> Quantiles | None:
        """None where there are no samples: no number stands for nothing measured."""
        ordered = sorted(samples)
        if not ordered:
            return None
        return cls(
            count=len(ordered),
            mean=math.fsum(ordered) / len(ordered),
            p50=nearest_rank(ordered, 50),
            p90=nearest_rank(ordered, 90),
            p95=nearest_rank(ordered, 95),
            p99=nearest_rank(ordered, 99),
            max=ordered[-1],
        )


def nearest_rank(ordered: list[float], percent: int) -> float:
    """The smallest sample that at least `percent` in a hundred do not exceed. In whole numbers: 0.95 * 20 is not 19."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
