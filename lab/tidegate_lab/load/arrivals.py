"""When requests arrive. Open loop: by the clock, answered or not; the same seed, the same times."""

from __future__ import annotations

import random
from collections.abc import Iterator


def poisson(rate: float, seed: int, requests: int, duration_s: float) -> Iterator[float]:
    """Seconds from the start, with exponential gaps of mean 1/rate; ends after `requests` or `duration_s`."""
    source = random.Random(seed)
    at = 0.0
    for _ in range(requests):
        at += source.expovariate(rate)
        if at > duration_s:
            return
        yield at
