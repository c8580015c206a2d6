"""How much more will come when a replica that is ordered now is ready, and how much has surely come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidegate_operator.decide.scaling_history import BUCKET_S, Bucket, History, rate_of

SURE_WINDOWS_S = (5.0, 20.0, 60.0)
SURE_Z = 2.5
"""One-sided 99.4 %, of what arrives as irregularly as this service's requests do."""
STEP_WINDOW_S = 180.0
STEP_Z = 4.0
"""A new level that is so far above the old one is no chance, and is best told by its mean."""
TREND_Z = 2.0
STEP_SHARE = 0.6
"""A step explains rates better than a line where it leaves less than this part of what the line leaves."""
LONGEST_TREND_S = 300.0
MIDDLE_OF_NOW_S = 30.0
"""The last minute's rate is that of half a minute ago."""
OCCUPIED_WINDOW_S = 60.0
FEWEST_BUCKETS = 6
LEAST_DISPERSION = 0.25
"""A load generator that sends at even intervals has none at all, and may stop doing so."""
ENOUGH_COUNTS = 12
"""From which arrivals are believed to be more even than those of independent users."""
MOST_GROWTH = 2.0
"""No trend is believed to more than double the load in one cold start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Arrivals per second."""

    now: float
    """Of the last minute."""
    surely: float
    """What it is at least, whatever chance did: the most of what several windows say."""
    ahead: float
    """One cold start from now, by a trend that is surely there."""
    dispersion: float
    """Variance over mean of the arrivals in 20 s, from one 20 s to the next: 1 for independent users, less for those
    that keep to a clock."""

    @property
    def growth(self) -> float:
        """By what the load grows until then; 1 where it does not surely grow."""
        return max(1.0, min(MOST_GROWTH, self.ahead / self.now)) if self.now > 0 else 1.0


def forecast(history: History, horizon_s: float) -> Forecast:
    """Look at the last minutes; `horizon_s` is the time until a replica ordered now is ready."""
    now = rate_of(history.last(60.0))
    level = risen_to(history.last(STEP_WINDOW_S))
    surely = level or 0.0
    for window in SURE_WINDOWS_S if level is None else ():
        some = history.last(window)
        seconds, count = sum(b.seconds for b in some), sum(b.arrived for b in some)
        if seconds < window * 0.75:
            continue
        spread = dispersion(_before(history, window), window)
        surely = max(surely, (count - SURE_Z * math.sqrt(spread * count)) / seconds)
    lately = history.last(min(LONGEST_TREND_S, max(60.0, 2 * horizon_s)))
    seen = trend(lately, [bucket.arrived / bucket.seconds for bucket in lately])
    surely_slope = seen.slope - TREND_Z * seen.error if math.isfinite(seen.error) else 0.0
    ahead = now + max(0.0, surely_slope) * (horizon_s + MIDDLE_OF_NOW_S)
    return Forecast(now=now, surely=surely, ahead=ahead, dispersion=dispersion(history.buckets, 20.0))


def occupied_ahead(history: History, horizon_s: float) -> float:
    """Replicas' worth of places that running requests will hold one cold start from now, if they go on so.

    Where the replicas have changed lately, requests spread over them, which is no rise.
    Arrivals say nothing of answers that have become longer; places that fill up do.
    """
    recent = history.last(OCCUPIED_WINDOW_S)
    if not recent:
        return 0.0
    same = [b for b in recent if b.ready == recent[-1].ready]
    now = occupied_lately(history, OCCUPIED_WINDOW_S / 3)
    seen = trend(same, [bucket.occupied for bucket in same])
    rise = max(0.0, seen.slope - TREND_Z * seen.error) if math.isfinite(seen.error) else 0.0
    return min(MOST_GROWTH * now, now + rise * (horizon_s + OCCUPIED_WINDOW_S / 6))


def occupied_lately(history: History, seconds: float = OCCUPIED_WINDOW_S) -> float:
    """Replicas' worth of places that running requests held, on average; 0 where there is no time."""
    recent = history.last(seconds)
    took = sum([b.seconds for b in recent])
    return sum([b.occupied * b.seconds for b in recent]) / took if took > 0 else 0.0


def risen_to(buckets: tuple[Bucket, ...]) -> float | None:
    """The rate since it rose from one level to another, where it surely did; None where it did not."""
    n = len(buckets)
    if n < FEWEST_BUCKETS:
        return None
    arrived, seconds = sum(b.arrived for b in buckets), sum(b.seconds for b in buckets)
    left_arrived = left_seconds = 0.0
    best, split = 0.0, 0
    for index in range(1, n):
        left_arrived += buckets[index - 1].arrived
        left_seconds += buckets[index - 1].seconds
        old, new = left_arrived / left_seconds, (arrived - left_arrived) / (seconds - left_seconds)
        explained = (new - old) ** 2 * left_seconds * (seconds - left_seconds) / seconds
        if new > old and explained > best:
            best, split = explained, index
    if split < FEWEST_BUCKETS // 2:
        return None
    before, after = buckets[:split], buckets[split:]
    old, new, took = rate_of(before), rate_of(after), sum(b.seconds for b in after)
    spread = dispersion(before, BUCKET_S)
    deviation = math.sqrt(spread * max(new, old) * (1 / took + 1 / sum(b.seconds for b in before)))
    return new - deviation if new - old > STEP_Z * deviation else None


def dispersion(buckets: Sequence[Bucket], window_s: float) -> float:
    """Variance over mean of counts in windows of this length, by the differences of neighbours: a slow rise is none."""
    counts: list[float] = []
    seconds = count = 0.0
    for bucket in reversed(buckets):
        seconds += bucket[0]
        count += bucket[1]
        if seconds >= window_s - 1e-6:
            counts.append(count * window_s / seconds)
            seconds = count = 0.0
    if len(counts) < 3:
        return 1.0
    mean = sum(counts) / len(counts)
    if mean <= 0:
        return 1.0
    squares = sorted([(one - other) ** 2 for one, other in pairwise(counts)])
    # One change of level is no irregularity: without the largest. That few are alike may be chance.
    if len(squares) < 2:
        return 1.0
    least = LEAST_DISPERSION if len(squares) >= ENOUGH_COUNTS else 1.0
    return max(least, sum(squares[:-1]) / (2 * (len(squares) - 1) * mean))


@dataclass(frozen=True, slots=True)
class Trend:
    """A rate that rises or falls, per second squared."""

    slope: float
    error: float
    """Standard error of the slope; infinite for too few buckets."""


def trend(buckets: Sequence[Bucket], rates: Sequence[float]) -> Trend:
    """Slope of the rate by least squares; none where one step between two levels explains the rates as well.

    A load that has jumped is not one that grows: a line through a step of ten times would promise twenty.
    """
    n = len(buckets)
    if n < FEWEST_BUCKETS:
        return Trend(0.0, math.inf)
    moments: list[float] = []
    at = 0.0
    for bucket in buckets:
        moments.append(at + bucket.seconds / 2)
        at += bucket.seconds
    middle, mean = sum(moments) / n, sum(rates) / n
    spread = sum((t - middle) ** 2 for t in moments)
    around = sum((r - mean) ** 2 for r in rates)
    slope = sum((t - middle) * (r - mean) for t, r in zip(moments, rates, strict=True)) / spread
    beside_line = around - slope * slope * spread
    total, left = sum(rates), 0.0
    best = 0.0
    for index in range(1, n):
        left += rates[index - 1]
        # What two levels explain: the squares between the two parts' means.
        between = left * left / index + (total - left) ** 2 / (n - index) - total * total / n
        best = max(best, between)
    if around - best <= STEP_SHARE * beside_line:
        return Trend(0.0, math.inf)
    return Trend(slope, math.sqrt(max(0.0, beside_line) / (n - 2) / spread))


def _before(history: History, seconds: float) -> tuple[Bucket, ...]:
    newest = len(history.last(seconds))
    return history.buckets[:-newest]
