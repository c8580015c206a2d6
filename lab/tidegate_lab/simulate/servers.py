"""What serves requests: the seam between the cluster, which makes replicas come and go, and the engines in them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tidegate_operator.observed_sketch import Sketch

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Since the replica was opened; the names are those of the load report."""

    received: int = 0
    finished: int = 0
    rejected: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    steps: int = 0

    def plus(self, other: Counts, sign: int = 1) -> Counts:
        """Both together; with sign -1, the first without the second."""
        return Counts(
            **{field.name: getattr(self, field.name) + sign * getattr(other, field.name) for field in _FIELDS}
        )


_FIELDS = fields(Counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """A replica at a moment. Running has a first token, waiting has none, as in the load report."""

    running: int
    waiting: int
    oldest_waiting_s: float
    oldest_unfinished_s: float
    """0 where there is none."""
    blocks_used: int
    last_step_age_s: float | None


Three = tuple[Sketch, Sketch, Sketch]
"""TTFT, TPOT and end to end, seconds from the replica's getting the request."""


class Servers(Protocol):
    """The replicas that run, by the number of their pod, and the requests of one trace.

    `serve` lets time pass; all else happens at the time it has reached.
    """

    def serve(self, until: float) -> None:
        """Take the arrivals before `until` and run every step that begins before it."""
        ...

    def open(self, number: int) -> None:
        """A replica is ready: it gets what is held, and its share of what comes."""
        ...

    def drain(self, number: int) -> None:
        """It gets nothing more, and goes on."""
        ...

    def close(self, number: int) -> int:
        """It is gone; how many requests are lost with it."""
        ...

    def inside(self, number: int) -> int:
        """Requests in it that have not finished."""
        ...

    def idle_since(self, number: int) -> float:
        """When its last step ended."""
        ...

    @property
    def held(self) -> int:
        """Requests that wait for any replica to be ready."""
        ...

    @property
    def oldest_held_s(self) -> float:
        """How long the first of them has waited; 0: there is none."""
        ...

    @property
    def arrived(self) -> int:
        """Requests of the trace that have come."""
        ...

    def totals(self) -> tuple[int, int]:
        """Requests inside all replicas: with a first token, and without."""
        ...

    def counts(self, number: int) -> Counts:
        """Since it was opened."""
        ...

    def grand_total(self) -> Counts:
        """Of all replicas there are and were."""
        ...

    def gauges(self, number: int) -> Gauges: ...

    def sketches(self, number: int) -> Three:
        """Of requests that got their first token, and of those that finished, since it was opened."""
        ...

    def sketched_now(self, number: int) -> tuple[Sketch, Sketch]:
        """Ages of requests without a first token, and pace so far of the others."""
        ...

    def times(self) -> tuple[Times, Times]:
        """By request: first token and finish; NaN: never."""
        ...
