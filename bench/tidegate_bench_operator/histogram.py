"""Quantiles of a Prometheus histogram between two looks at it."""

from __future__ import annotations

from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]
Metrics = Mapping[tuple[str, Labels], float]


def buckets_between(before: Metrics, after: Metrics, family: str) -> list[tuple[float, float]]:
    """(upper bound, count up to it) of what was observed in between, ascending."""
    return sorted(
        (float(dict(labels)["le"]), value - before.get((name, labels), 0.0))
        for (name, labels), value in after.items()
        if name == f"{family}_bucket"
    )


def quantile(buckets: list[tuple[float, float]], q: float) -> float | None:
    """By linear interpolation within a bucket, as PromQL's histogram_quantile; the last finite bound where it lies
    beyond; None where nothing was observed."""
    total = buckets[-1][1] if buckets else 0.0
    if not total:
        return None
    rank, low, below = q * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (count - below) if count > below else bound
        low, below = bound, count
    return low
