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


def late_share(
    arrivals: Sequence[tuple[float, float]], places: float, service_s: float, patience_s: float, enough: float = 1.0
) -> float:
    """Share of the arrivals (seconds, how many came) that would have waited for longer than `patience_s`; 0 where
    nothing arrived. Where it is surely more than `enough`, how much more is left open.

    It begins with as many inside as the mean rate keeps there, at most as many as there are places.
    """
    arrived = sum([came for _, came in arrivals])
    seconds = sum([width for width, _ in arrivals])
    if arrived <= 0 or seconds <= 0:
        return 0.0
    if places <= 0:
        return 1.0
    inside = min(places, arrived / seconds * service_s)
    most = places * (1 + patience_s / service_s)
    late, too_many = 0.0, enough * arrived * (1 + 1e-9)
    # Asked ten times for every decision, and hundreds of times around: no calls in it.
    for width, came in arrivals:
        # Half of the bucket's arrivals are there, on average, while it lasts; none leaves twice.
        there = inside + came / 2
        after = inside + came - (there if there < places else places) * width / service_s
        if after < 0.0:
            after = 0.0
        low, high = (inside, after) if inside < after else (after, inside)
        if high > most:
            late += came if low >= most else came * (high - most) / (high - low)
            if late > too_many:
                break
        elif low >= most:
            late += came
        inside = after
    return min(1.0, late / arrived)


@dataclass(frozen=True, slots=True)
class Expected:
    """Requests that should be there now."""

    running: float
    waiting: float


def expected_now(buckets: Sequence[Bucket], concurrency: float, service_s: float) -> Expected:
    """By what came, and the replicas that were ready at each time."""
    inside = there = places = 0.0
    for width, came, ready, _ in buckets:
        places = ready * concurrency
        there = inside + came / 2
        inside = inside + came - (there if there < places else places) * width / service_s
        if inside < 0.0:
            inside = 0.0
    # Half-way through the newest bucket: at its end half of what came in it is counted as gone.
    return Expected(min(there, places), max(0.0, inside - places))


def replicas_that_hold(
    arrivals: Sequence[tuple[float, float]],
    model: ReplicaModel,
    patience_s: float,
    allowed: float,
    first_guess: int,
    most: int,
) -> int:
    """The fewest replicas on which no more than the share `allowed` would have been late; at most `most`."""
    if not any(came for _, came in arrivals):
        return 0

    def holds(replicas: int) -> bool:
        places = replicas * model.concurrency
        return late_share(arrivals, places, model.service_s, patience_s, allowed) <= allowed

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
