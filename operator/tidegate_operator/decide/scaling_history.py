"""Arrivals of the last while in buckets of a few seconds: what forecasts, bursts and replays are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BUCKET_S = 5.0
LONGEST_S = 1800.0
"""Half an hour: bursts that come less often are not held capacity for."""
MOST_BUCKETS = 400


class Span(NamedTuple):
    """Requests that a report told of, and the time it covers, which ends now."""

    seconds: float
    arrived: float


class Bucket(NamedTuple):
    """Requests that arrived in so many seconds."""

    seconds: float
    arrived: float
    ready: float = 0.0
    """Replicas that were ready, on average."""
    occupied: float = 0.0
    """Replicas' worth of KV cache or slots that ran requests held, whichever was scarcer, on average."""


@dataclass(frozen=True, slots=True)
class History:
    """The oldest first; the last one grows until it is `BUCKET_S` long."""

    buckets: tuple[Bucket, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(bucket.seconds for bucket in self.buckets)

    def last(self, seconds: float) -> tuple[Bucket, ...]:
        """The newest buckets that cover so many seconds, or all there are."""
        covered = 0.0
        for index in range(len(self.buckets) - 1, -1, -1):
            covered += self.buckets[index].seconds
            if covered >= seconds - 1e-6:
                return self.buckets[index:]
        return self.buckets

    def with_look(self, seconds: float, counted: tuple[Span, ...], ready: int, occupied: float) -> History:
        """One look later, `seconds` after the last. Each `counted` is arrivals over a span that ends now.

        A span longer than the look (a pod that was silent for a while) is spread over the buckets before: a report
        that comes late is no burst.
        """
        if seconds <= 0:
            return self
        buckets = list(self.buckets)
        if buckets and buckets[-1].seconds + seconds / 2 <= BUCKET_S:
            last = buckets[-1]
            total, share = last.seconds + seconds, seconds / (last.seconds + seconds)
            buckets[-1] = Bucket(
                total,
                last.arrived,
                last.ready + share * (ready - last.ready),
                last.occupied + share * (occupied - last.occupied),
            )
        else:
            buckets.append(Bucket(seconds, 0.0, float(ready), occupied))
        total = sum([bucket.seconds for bucket in buckets])
        for span, arrived in counted:
            _spread(buckets, total, span, arrived)
        while len(buckets) > 1 and (total - buckets[0].seconds >= LONGEST_S or len(buckets) > MOST_BUCKETS):
            total -= buckets.pop(0).seconds
        return History(tuple(buckets))


def rate_of(buckets: tuple[Bucket, ...]) -> float:
    """Mean arrivals per second; 0 where there is no time."""
    seconds = sum([bucket.seconds for bucket in buckets])
    return sum([bucket.arrived for bucket in buckets]) / seconds if seconds > 0 else 0.0


def _spread(buckets: list[Bucket], total: float, span: float, arrived: float) -> None:
    """`total` is the seconds of all buckets."""
    if arrived <= 0:
        return
    covered = min(span, total)
    if span <= buckets[-1].seconds or covered <= 0:
        seconds, came, ready, occupied = buckets[-1]
        buckets[-1] = Bucket(seconds, came + arrived, ready, occupied)
        return
    left = covered
    for index in range(len(buckets) - 1, -1, -1):
        seconds, came, ready, occupied = buckets[index]
        share = min(left, seconds)
        buckets[index] = Bucket(seconds, came + arrived * share / covered, ready, occupied)
        left -= share
        if left <= 1e-9:
            return
