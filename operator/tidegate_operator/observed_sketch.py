"""A mergeable count of durations by size: DDSketch's logarithmic mapping with 1 % relative error (docs/seams.md)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

GAMMA = 1.01 / 0.99
LOWEST_BIN, HIGHEST_BIN = -700, 1200
"""Bins of 1e-6 s (-691) and of 1e10 s (1152), with room; anything outside is garbage."""
_ESTIMATES = tuple(2 * GAMMA**k / (GAMMA + 1) for k in range(LOWEST_BIN, HIGHEST_BIN + 1))
"""What a value of each bin is taken for, seconds; rising."""


class Sketch:
    """Counts by bin, seconds; bin k holds values in (GAMMA**(k-1), GAMMA**k], `zero` those of 1e-6 s or less.

    Never changed once made. Kept as a dictionary: a pod's report is compared with its last one bin by bin, some
    hundred bins for each of thousands of pods in every interval.
    """

    __slots__ = ("_counts", "zero")

    def __init__(self, zero: int = 0, bins: Iterable[tuple[int, int]] = ()) -> None:
        self.zero = zero
        self._counts = {k: n for k, n in bins if n}

    @classmethod
    def counted(cls, zero: int, counts: dict[int, int]) -> Sketch:
        """Of a dictionary without empty bins, which is kept as it is: nobody may change it afterwards."""
        made = cls.__new__(cls)
        made.zero, made._counts = zero, counts
        return made

    @classmethod
    def of(cls, values: Iterable[float]) -> Sketch:
        """Count seconds one by one."""
        counts: dict[int, int] = {}
        zero = 0
        for value in values:
            if value > 1e-6:
                k = min(HIGHEST_BIN, math.ceil(math.log(value, GAMMA)))
                counts[k] = counts.get(k, 0) + 1
            else:
                zero += 1
        return cls.counted(zero, counts)

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """Count together what several pods, or several times, counted apart."""
        counts: dict[int, int] = {}
        zero = 0
        for sketch in sketches:
            zero += sketch.zero
            if counts:
                known = counts.get
                for k, n in sketch._counts.items():
                    counts[k] = known(k, 0) + n
            elif sketch._counts:
                counts = sketch._counts.copy()
        return cls.counted(zero, counts)

    @property
    def bins(self) -> tuple[tuple[int, int], ...]:
        """(bin, count), ascending by bin, no empty ones."""
        return tuple(sorted(self._counts.items()))

    @property
    def count(self) -> int:
        return self.zero + sum(self._counts.values())

    def since(self, earlier: Sketch) -> Sketch:
        """What was counted after `earlier` of the same process. Where a count fell it began again: all of it is new."""
        counts, before = self._counts, earlier._counts
        zero = self.zero - earlier.zero
        if not before and not earlier.zero:
            return self
        known = before.get
        left = {k: n - known(k, 0) for k, n in counts.items() if known(k) != n}
        # Few bins grow between two looks, so those are asked, and not all, whether each bin of before is still there.
        kept = len(counts) - len([k for k in left if k not in before])
        if zero < 0 or kept < len(before) or (left and min(left.values()) < 0):
            return self
        return Sketch.counted(zero, left)

    def quantile(self, q: float) -> float | None:
        """Seconds such that a share `q` of the values is no greater; None where nothing was counted."""
        total = self.count
        if not total:
            return None
        rank = max(1, math.ceil(q * total))
        seen = self.zero
        if rank <= seen:
            return 0.0
        ordered = sorted(self._counts)
        for k in ordered:
            seen += self._counts[k]
            if rank <= seen:
                return _estimate(k)
        return _estimate(ordered[-1])

    def count_above(self, seconds: float) -> int:
        """How many values are greater than `seconds`, by their bins' estimates."""
        lowest = LOWEST_BIN + bisect_right(_ESTIMATES, seconds)
        above = sum([n for k, n in self._counts.items() if k >= lowest])
        return above + self.zero if seconds < 0 else above

    def at_most(self, seconds: float) -> Sketch:
        """Only the values up to `seconds`, by their bins' estimates."""
        lowest = LOWEST_BIN + bisect_right(_ESTIMATES, seconds)
        return Sketch.counted(self.zero, {k: n for k, n in self._counts.items() if k < lowest})

    def mean(self) -> float | None:
        """Mean of the estimates, seconds; None where nothing was counted."""
        total = self.count
        return sum(n * _estimate(k) for k, n in self.bins) / total if total else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sketch) and self.zero == other.zero and self._counts == other._counts

    def __hash__(self) -> int:
        return hash((self.zero, frozenset(self._counts.items())))

    def __repr__(self) -> str:
        return f"Sketch({self.zero}, {self.bins})"


EMPTY = Sketch()


def _estimate(k: int) -> float:
    return _ESTIMATES[k - LOWEST_BIN]
