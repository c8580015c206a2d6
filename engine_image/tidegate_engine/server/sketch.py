"""DDSketch's logarithmic mapping: quantiles of durations with 1 % relative error, mergeable by adding bins.

Source: Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch", VLDB 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

RELATIVE_ERROR = 0.01
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
SMALLEST = 1e-6
"""Seconds. What is not above it counts in `zero`."""
LARGEST = 1e7
"""Seconds (115 days). Longer ones count as this long, so that a wild value costs a bin and no more."""
_LOG_GAMMA = math.log(GAMMA)


class SketchSnapshot(msgspec.Struct, frozen=True):
    """A sketch as `/load` sends it; the keys of `bins` are integers written as strings."""

    gamma: float
    zero: int
    bins: dict[str, int]


class Sketch:
    """Counts durations in bins 2 % wide; a bin k stands for the value `2 * GAMMA**k / (GAMMA + 1)` seconds."""

    __slots__ = ("bins", "zero")

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        self.zero = 0
        self.bins: dict[int, int] = {}
        for value in seconds:
            self.add(value)

    def add(self, seconds: float) -> None:
        """Count one duration; what is negative or not a number counts as zero."""
        if not seconds > SMALLEST:
            self.zero += 1
            return
        key = math.ceil(math.log(min(seconds, LARGEST)) / _LOG_GAMMA)
        self.bins[key] = self.bins.get(key, 0) + 1

    def snapshot(self, max_bins: int | None = None) -> SketchSnapshot:
        """The counts; over `max_bins` the lowest bins are folded into one, which leaves high quantiles as they are."""
        keys = sorted(self.bins)
        if max_bins is not None and len(keys) > max_bins:
            folded, kept = keys[: len(keys) - max_bins + 1], keys[len(keys) - max_bins + 1 :]
            bins = {str(folded[-1]): sum(self.bins[key] for key in folded)}
            bins.update((str(key), self.bins[key]) for key in kept)
        else:
            bins = {str(key): self.bins[key] for key in keys}
        return SketchSnapshot(GAMMA, self.zero, bins)
