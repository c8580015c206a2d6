"""When requests arrive. Open loop: by the clock, answered or not; the same seed, the same times."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a recorded trace; seconds since its beginning."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


def recorded(path: Path) -> tuple[Arrival, ...]:
    """A trace as `tidegate trace --write` makes it; raises ValueError with one line.

    This package runs in a pod without the others, so it reads one format only.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--trace {path}: cannot be read ({error})") from error
    arrivals: list[Arrival] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            arrivals.append(Arrival(float(row["arrived_s"]), int(row["prompt_tokens"]), int(row["output_tokens"])))
        except (ValueError, TypeError, KeyError) as error:
            remedy = "`tidegate trace --write` makes such a file"
            raise ValueError(f"--trace {path}:{number}: is no request; {remedy}") from error
    if not arrivals:
        raise ValueError(f"--trace {path}: has no requests")
    return tuple(sorted(arrivals, key=lambda arrival: arrival.at_s))


def poisson(rate: float, seed: int, requests: int, duration_s: float) -> Iterator[float]:
    """Seconds from the start, with exponential gaps of mean 1/rate; ends after `requests` or `duration_s`."""
    source = random.Random(seed)
    at = 0.0
    for _ in range(requests):
        at += source.expovariate(rate)
        if at > duration_s:
            return
        yield at
