"""Who chooses the number of replicas: ours, and each rival, by what an operator can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate_operator.observed import ServiceObserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a policy wants now; bounds are applied by the policy itself."""

    replicas: int
    reason: str = ""
    message: str = ""
    data_state: str = ""
    """What it makes of the data, where it says so."""


class Policy(Protocol):
    """Asked every `interval_s` of virtual time; keeps its own memory, and is made anew for each simulation.

    `observed` holds what the last scrape of each pod said (`ReplicaFacts.load`), and how old that is. Counters are
    cumulative by boot. `wants_sketches` False: latencies are left out of the reports, which is faster.
    """

    name: str
    interval_s: float
    wants_sketches: bool

    def choose(self, observed: ServiceObserved, now: float) -> Choice:
        """How many replicas from now on. `now` is in seconds since the epoch."""
        ...
