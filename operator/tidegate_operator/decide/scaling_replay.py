"""What would have become of the last minutes' arrivals on another number of replicas.

A fleet is a queue with a place for each request that may run, G/G/m in buckets: what is beyond the places waits, and
leaves as places come free. No distribution is assumed; bursts count as they came, on whatever scale they came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate_operator.decide.replica_model import ReplicaModel
from tidegate_operator.decide.scaling_history import Bucket


def late_share(buckets: Sequence[Bucket], places: float, service_s: float, patience_s: float) -> float:
    """Share of the arrivals that would have waited for longer than `patience_s`; 0 where nothing arrived.

    It begins with as many inside as the buckets' mean rate keeps there, at most as many as there are places.
    """
    arrived = sum(bucket.arrived for bucket in buckets)
    seconds = sum(bucket.seconds for bucket in buckets)
    if arrived <= 0 or seconds <= 0:
        return 0.0
    if places <= 0:
        return 1.0
    inside = min(places, arrived / seconds * service_s)
    most = places * (1 + patience_s / service_s)
    late = 0.0
    for width, came, *_ in buckets:
        # Half of the bucket's arrivals are there, on average, while it lasts; none leaves twice.
        served = min(inside + came / 2, places) * width / service_s
        after = max(0.0, inside + came - served)
        low, high = (inside, after) if inside < after else (after, inside)
        if low >= most:
            late += came
        elif high > most:
            late += came * (high - most) / (high - low)
        inside = after
    return min(1.0, late / arrived)


@dataclass(frozen=True, slots=True)
class Expected:
    """Requests that should be there now."""

    running: float
    waiting: float


def expected_now(buckets: Sequence[Bucket], concurrency: float, service_s: float) -> Expected:
    """By what came, and the replicas that were ready at each time."""
    inside = places = 0.0
    for width, came, ready, _ in buckets:
        places = ready * concurrency
        inside = max(0.0, inside + came - min(inside + came / 2, places) * width / service_s)
    return Expected(min(inside, places), max(0.0, inside - places))


def replicas_that_hold(
    buckets: Sequence[Bucket], model: ReplicaModel, patience_s: float, allowed: float, first_guess: int, most: int
) -> int:
    """The fewest replicas on which no more than the share `allowed` would have been late; at most `most`."""
    if not any(bucket.arrived for bucket in buckets):
        return 0

    def holds(replicas: int) -> bool:
        return late_share(buckets, replicas * model.concurrency, model.service_s, patience_s) <= allowed

    high = max(1, min(first_guess, most))
    low = 0
    while not holds(high):
        if high >= most:
            return most
        low, high = high, min(most, max(high + 1, math.ceil(high * 1.25)))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
