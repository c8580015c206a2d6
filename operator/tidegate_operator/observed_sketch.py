"""A mergeable count of durations by size: DDSketch's logarithmic mapping with 1 % relative error (docs/seams.md)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

GAMMA = 1.01 / 0.99
LOWEST_BIN, HIGHEST_BIN = -700, 1200
"""Bins of 1e-6 s (-691) and of 1e10 s (1152), with room; anything outside is garbage."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Counts by bin, seconds; bin k holds values in (GAMMA**(k-1), GAMMA**k], `zero` those of 1e-6 s or less."""

    zero: int = 0
    bins: tuple[tuple[int, int], ...] = ()
    """(bin, count), ascending by bin, no empty ones."""

    @classmethod
    def of(cls, values: Iterable[float]) -> Sketch:
        """Count seconds one by one."""
        bins: Counter[int] = Counter()
        zero = 0
        for value in values:
            if value > 1e-6:
                bins[math.ceil(math.log(value, GAMMA))] += 1
            else:
                zero += 1
        return cls(zero, tuple(sorted(bins.items())))

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """Count together what several pods, or several times, counted apart."""
        bins: Counter[int] = Counter()
        zero = 0
        for sketch in sketches:
            zero += sketch.zero
            for k, n in sketch.bins:
                bins[k] += n
        return cls(zero, tuple(sorted(bins.items())))

    @property
    def count(self) -> int:
        return self.zero + sum(n for _, n in self.bins)

    def since(self, earlier: Sketch) -> Sketch:
        """What was counted after `earlier` of the same process. Where a count fell it began again: all of it is new."""
        before = dict(earlier.bins)
        left = {k: n - before.pop(k, 0) for k, n in self.bins}
        if before or self.zero < earlier.zero or any(n < 0 for n in left.values()):
            return self
        return Sketch(self.zero - earlier.zero, tuple((k, n) for k, n in left.items() if n))

    def quantile(self, q: float) -> float | None:
        """Seconds such that a share `q` of the values is no greater; None where nothing was counted."""
        total = self.count
        if not total:
            return None
        rank = max(1, math.ceil(q * total))
        seen = self.zero
        if rank <= seen:
            return 0.0
        for k, n in self.bins:
            seen += n
            if rank <= seen:
                return _estimate(k)
        return _estimate(self.bins[-1][0])

    def count_above(self, seconds: float) -> int:
        """How many values are greater than `seconds`, by their bins' estimates."""
        above = sum(n for k, n in self.bins if _estimate(k) > seconds)
        return above + self.zero if seconds < 0 else above

    def mean(self) -> float | None:
        """Mean of the estimates, seconds; None where nothing was counted."""
        total = self.count
        return sum(n * _estimate(k) for k, n in self.bins) / total if total else None


EMPTY = Sketch()


def _estimate(k: int) -> float:
    return float(2 * GAMMA**k / (GAMMA + 1))
