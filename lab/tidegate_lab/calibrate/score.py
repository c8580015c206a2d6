"""How far a simulation is from a measured run: quantiles of three latencies, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.fixed import Served

PERCENTS = (50, 90, 99)
MEASURES = ("TTFT", "TPOT", "end to end")


@dataclass(frozen=True, slots=True)
class Line:
    """One quantile of one latency, in seconds."""

    measure: str
    percent: int
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """By how much the simulation is off, as a share of what was measured."""
        return self.simulated / self.measured - 1 if self.measured else math.inf


def latencies(served: Served, rows: slice) -> tuple[NDArray[np.float64], ...]:
    """TTFT, TPOT and end to end of some of the requests. TPOT: of those with two tokens or more."""
    return served.ttft[rows], served.tpot[rows][served.trace.output[rows] > 1], served.e2e[rows]


def quantiles(served: Served, rows: slice) -> NDArray[np.float64]:
    """In the order of MEASURES, then of PERCENTS; by nearest rank, as `tidegate load` tells them."""
    return np.array(
        [np.percentile(values, PERCENTS, method="inverted_cdf") for values in latencies(served, rows) if len(values)]
    ).ravel()


def compare(measured: Served, simulated: Served, rows: slice) -> tuple[Line, ...]:
    """Quantile by quantile; a latency that none of the requests has (TPOT of answers of one token) is left out."""
    had = [name for name, values in zip(MEASURES, latencies(measured, rows), strict=True) if len(values)]
    names = [(measure, percent) for measure in had for percent in PERCENTS]
    pairs = zip(names, quantiles(measured, rows), quantiles(simulated, rows), strict=True)
    return tuple(Line(*name, float(true), float(guess)) for name, true, guess in pairs)


def table(lines: Sequence[Line]) -> str:
    """For people: a row for each latency, a group of columns for each quantile; seconds."""
    rows = [f"{'':12}" + "".join(f"{f'p{percent}: measured, simulated, error':>36}" for percent in PERCENTS)]
    for measure in MEASURES:
        cells = [
            f"{line.measured:>14.4g} {line.simulated:>12.4g} {line.error:>+8.1%}"
            for line in lines
            if line.measure == measure
        ]
        rows.append(f"{measure:12}" + ("".join(cells) or f"{'-':>14}"))
    return "\n".join(rows)
