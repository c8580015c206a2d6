"""Comparing whole curves: what a policy attains for its cost over all its settings, and between them.

Between two settings a straight line counts: running one for a share of the time and the other for the rest gives it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """Replica-hours, and the share of requests that attained."""

    hours: float
    attainment: float


def dominates(one: Point, other: Point) -> bool:
    """Both cheaper and better."""
    return one.hours < other.hours and one.attainment > other.attainment


@dataclass(frozen=True, slots=True)
class Curve:
    """Points that no other of them makes pointless: hours and attainment both ascend."""

    points: tuple[Point, ...]

    @classmethod
    def of(cls, points: Iterable[Point]) -> Curve:
        """Raises ValueError where there are none."""
        kept: list[Point] = []
        for point in sorted(points, key=lambda p: (p.hours, -p.attainment)):
            if not kept or point.attainment > kept[-1].attainment:
                kept.append(point)
        if not kept:
            raise ValueError("a curve needs a point")
        return cls(tuple(kept))

    def attainment_at(self, hours: float) -> float | None:
        """The best that these hours buy; None below the cheapest point."""
        if hours < self.points[0].hours:
            return None
        at = bisect_right([p.hours for p in self.points], hours)
        if at == len(self.points):
            return self.points[-1].attainment
        low, high = self.points[at - 1], self.points[at]
        share = (hours - low.hours) / (high.hours - low.hours)
        return low.attainment + share * (high.attainment - low.attainment)

    def hours_at(self, attainment: float) -> float | None:
        """The least hours that attain this; None above the best point. Below the worst, the cheapest point's hours."""
        if attainment > self.points[-1].attainment:
            return None
        if attainment <= self.points[0].attainment:
            return self.points[0].hours
        for low, high in pairwise(self.points):
            if attainment <= high.attainment:
                share = (attainment - low.attainment) / (high.attainment - low.attainment)
                return low.hours + share * (high.hours - low.hours)
        raise AssertionError("the points ascend to their best")

    def beaten_by(self, point: Point) -> bool:
        """Is the point cheaper and better than some place on this curve, the lines between its points included?"""
        if any(dominates(point, own) for own in self.points):
            return True
        here = self.attainment_at(point.hours)
        return here is not None and point.hours < self.points[-1].hours and point.attainment > here
