"""Replicas that leap from event to event: the compiled tables behind the seam that the cluster uses."""

from __future__ import annotations

from dataclasses import fields
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from tidegate_operator.observed_sketch import Sketch

from tidegate_lab.simulate.leap_gauges import oldest, sketched_now
from tidegate_lab.simulate.leap_state import LOWEST, WIDTH, rules_of, tables_for, widened
from tidegate_lab.simulate.leap_steps import LEAST, RANDOM, ROUND_ROBIN, release, serve
from tidegate_lab.simulate.scenario import Routing, Scenario
from tidegate_lab.simulate.servers import Counts, Gauges, Three, Times

_ROUTING = {Routing.LEAST: LEAST, Routing.RANDOM: RANDOM, Routing.ROUND_ROBIN: ROUND_ROBIN}
_FIRST_ROWS = 16
_NEVER = -(1 << 40)
"""Turn of a replica that was given nothing yet; with its number, so that of two new ones the older comes first."""


class LeapServers:
    """See `servers.Servers`."""

    def __init__(self, scenario: Scenario) -> None:
        self._rules = rules_of(scenario.engine)
        self._tables = tables_for(scenario.trace, self._rules, _FIRST_ROWS, scenario.seed, _ROUTING[scenario.routing])
        self._traffic = self._tables.traffic[0]
        self._rows: dict[int, int] = {}
        self._drawn: dict[int, tuple[_Drawn, _Drawn, _Drawn]] = {}
        self._now = 0.0
        self._gone = Counts()

    def serve(self, until: float) -> None:
        """Take the arrivals before `until` and run every step that begins before it."""
        serve(self._rules, self._tables, until)
        self._now = until

    def open(self, number: int) -> None:
        """A replica is ready: it gets what is held, and its share of what comes."""
        row = next(row for row in range(len(self._rows) + 1) if row not in self._rows.values())
        if row == len(self._tables.replicas):
            self._tables = widened(self._tables)
        self._rows[number] = row
        self._drawn[number] = (_Drawn(), _Drawn(), _Drawn())
        self._traffic["rows"] = max(self._traffic["rows"], row + 1)
        replica = self._tables.replicas[row]
        replica["open"] = replica["ready"] = 1
        replica["number"], replica["routed"] = number, _NEVER + number
        replica["free"], replica["clock"], replica["stepped"] = self._rules.blocks, self._now, np.nan
        release(self._rules, self._tables, self._now)

    def drain(self, number: int) -> None:
        """It gets nothing more, and goes on."""
        self._tables.replicas[self._rows[number]]["ready"] = 0

    def close(self, number: int) -> int:
        """It is gone; how many requests are lost with it."""
        self._gone = self._gone.plus(self.counts(number))
        lost, row = self.inside(number), self._rows.pop(number)
        del self._drawn[number]
        self._tables.replicas[row] = np.zeros((), self._tables.replicas.dtype)
        self._tables.bins[row] = 0
        return lost

    def inside(self, number: int) -> int:
        """Requests in it that have not finished."""
        replica = self._tables.replicas[self._rows[number]]
        return int(replica["running"] + replica["waiting"])

    def idle_since(self, number: int) -> float:
        """When its last step ended."""
        return float(self._tables.replicas[self._rows[number]]["clock"])

    @property
    def held(self) -> int:
        """Requests that wait for any replica to be ready."""
        return int(self._traffic["held"])

    @property
    def oldest_held_s(self) -> float:
        """How long the first of them has waited; 0: there is none."""
        return self._now - float(self._tables.requests[self._traffic["head"]]["at"]) if self.held else 0.0

    @property
    def arrived(self) -> int:
        """Requests of the trace that have come."""
        return int(self._traffic["next"])

    def totals(self) -> tuple[int, int]:
        """Requests inside all replicas: with a first token, and without."""
        replicas = self._tables.replicas
        waiting = int(replicas["unfirst"].sum())
        return int(replicas["running"].sum() + replicas["waiting"].sum()) - waiting, waiting

    def counts(self, number: int) -> Counts:
        """Since it was opened."""
        replica = self._tables.replicas[self._rows[number]].item()
        return Counts(**dict(zip(_COUNTS, replica[-len(_COUNTS) :], strict=True)))

    def grand_total(self) -> Counts:
        """Of all replicas there are and were."""
        return reduce(Counts.plus, (self.counts(number) for number in self._rows), self._gone)

    def gauges(self, number: int) -> Gauges:
        """As it is now."""
        row = self._rows[number]
        replica = self._tables.replicas[row]
        waiting, unfinished = oldest(self._tables, row)
        unfirst, stepped = int(replica["unfirst"]), float(replica["stepped"])
        return Gauges(
            running=int(replica["running"] + replica["waiting"]) - unfirst,
            waiting=unfirst,
            oldest_waiting_s=0.0 if np.isnan(waiting) else self._now - waiting,
            oldest_unfinished_s=0.0 if np.isnan(unfinished) else self._now - unfinished,
            blocks_used=self._rules.blocks - int(replica["free"]),
            last_step_age_s=None if np.isnan(stepped) else self._now - stepped,
        )

    def sketches(self, number: int) -> Three:
        """Of requests that got their first token, and of those that finished, since it was opened."""
        bins = self._tables.bins[self._rows[number]]
        ttft, tpot, e2e = self._drawn[number]
        return ttft.draw(bins[0]), tpot.draw(bins[1]), e2e.draw(bins[2])

    def sketched_now(self, number: int) -> tuple[Sketch, Sketch]:
        """Ages of requests without a first token, and pace so far of the others."""
        ages, paces = sketched_now(self._tables, self._rows[number], self._now)
        return _sketch(*ages), _sketch(*paces)

    def times(self) -> tuple[Times, Times]:
        """By request: first token and finish; NaN: never."""
        requests = self._tables.requests
        return requests["first"].copy(), requests["finish"].copy()


_COUNTS = tuple(field.name for field in fields(Counts))
"""The last columns of a replica's row, in their order."""


class _Drawn:
    """A sketch of a row of bins, made anew where they grew: most of a thousand bins stay as they are."""

    __slots__ = ("_counts", "_known", "sketch")

    def __init__(self) -> None:
        self.sketch = Sketch()
        self._known = np.zeros(WIDTH, np.int32)
        self._counts: dict[int, int] = {}

    def draw(self, bins: NDArray[np.int32]) -> Sketch:
        """As the operator reads it from the wire."""
        (grown,) = np.nonzero(bins != self._known)
        if len(grown):
            self._known[grown] = bins[grown]
            self._counts = self._counts.copy()
            self._counts.update(zip((grown + LOWEST).tolist(), bins[grown].tolist(), strict=True))
            self._counts.pop(LOWEST, None)
            self.sketch = Sketch.counted(int(bins[0]), self._counts)
        return self.sketch


def _sketch(zero: int, bins: NDArray[np.int64], counts: NDArray[np.int64]) -> Sketch:
    return Sketch.counted(zero, dict(zip(bins.tolist(), counts.tolist(), strict=True)))
