"""When each service is read: evenly over an interval, which stretches for all alike where a round takes longer.

Arithmetic only: times are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegate_operator.observed import ServiceKey

LATE = 1.05
"""A round this much longer than its interval was late; less is the timer's own."""
BEHIND_S = 0.1
"""A turn this much after its time moves those that follow."""
CATCH_UP = 0.2
"""How much closer turns come while some time is to be made up for: a pause of a second is forgotten after five."""
EASE = 0.9
"""By what a stretched interval is shortened after a round that was on time."""


class Slot(NamedTuple):
    """A service's place in the round, seconds after its beginning."""

    key: ServiceKey
    after: float


def spread(weights: Mapping[ServiceKey, int], interval: float) -> tuple[Slot, ...]:
    """Places in the order given, apart in proportion to the weights (pods to read), so that no moment has a burst."""
    total = sum(weights.values())
    slots, before = [], 0
    for key, weight in weights.items():
        slots.append(Slot(key, interval * before / total if total else 0.0))
        before += weight
    return tuple(slots)


@dataclass(slots=True)
class Pace:
    """The interval in force, seconds. Every service is read once a round, so a longer one starves none."""

    asked: float
    """As configured; never shorter than that."""
    interval: float = 0.0

    def __post_init__(self) -> None:
        self.interval = max(self.interval, self.asked)

    @property
    def is_stretched(self) -> bool:
        """Whether what is configured cannot be kept."""
        return self.interval > self.asked * LATE

    @staticmethod
    def caught_up(late: float, passed: float) -> float:
        """What is left of being late after `passed` seconds of the plan, made up for a little at a time."""
        return max(0.0, late - CATCH_UP * passed)

    @staticmethod
    def behind(late: float, now: float) -> float:
        """By how much the rest of the round is moved back, where it was `late` so far and the turn at hand comes `now`
        seconds after its place: turns that are hurried after a delay would be a burst, and all of them late."""
        return now if now > late + BEHIND_S else late

    def round_took(self, seconds: float, idle: float) -> None:
        """After a round, `idle` seconds of which there was nothing to do: the next interval.

        One that was late sets what a round takes. One that was on time is tried a little shorter; one that was mostly
        idle, as after a start with everything to create, with twice the time it had work for.
        """
        if seconds > self.interval * LATE:
            self.interval = seconds
        else:
            busy = seconds - idle
            self.interval = max(self.asked, min(self.interval * EASE, 2 * busy if busy < idle else self.interval))
