"""A simulation as columns over equal pieces of time, for plotting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.outcome import Outcome

Column = NDArray[np.float64]
_PIECES = 300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """One value for each piece of `width` seconds; NaN where there is none."""

    width: float
    arrivals_per_s: Column
    wanted: Column
    ready: Column
    waiting: Column
    running: Column
    """These four at the last look of the piece."""
    ttft_p99: Column
    """Of first tokens in the piece."""
    tpot_p99: Column
    """Of requests that finished in it."""
    missed: Column
    """Share of the requests that came in it and were not within every target."""

    @property
    def seconds(self) -> float:
        """How long all of it is."""
        return self.width * len(self.wanted)

    @classmethod
    def of(cls, outcome: Outcome) -> Series:
        """At most 300 pieces, none shorter than two looks."""
        trace, moments = outcome.scenario.trace, outcome.moments
        apart = moments[0].at if moments else 1.0
        # A trace of one moment is drawn a second wide.
        seconds = trace.seconds or 1.0
        pieces = int(max(1, min(_PIECES, seconds // (2 * apart))))
        arrived = _piece(trace.at, seconds, pieces)
        came = np.bincount(arrived[arrived >= 0], minlength=pieces)
        missed = np.bincount(arrived[~outcome.attained & (arrived >= 0)], minlength=pieces)
        looked = _piece(np.array([moment.at for moment in moments]), seconds, pieces)
        several = trace.output > 1

        def last(values: list[int]) -> Column:
            column = np.full(pieces, np.nan)
            column[looked] = values
            return column

        with np.errstate(invalid="ignore"):
            share = missed / came
        return cls(
            width=seconds / pieces,
            arrivals_per_s=came * pieces / seconds,
            wanted=last([moment.choice.replicas for moment in moments]),
            ready=last([moment.ready for moment in moments]),
            waiting=last([moment.waiting for moment in moments]),
            running=last([moment.running for moment in moments]),
            ttft_p99=_p99(outcome.ttft, _piece(outcome.first_token_at, seconds, pieces), pieces),
            tpot_p99=_p99(outcome.tpot[several], _piece(outcome.finished_at[several], seconds, pieces), pieces),
            missed=share,
        )


def _piece(times: Column, seconds: float, pieces: int) -> NDArray[np.int64]:
    """Which piece each time is in, the very end in the last; -1: in none."""
    known = np.nan_to_num(times, nan=-1.0)
    found = np.minimum(np.floor(known * pieces / seconds).astype(np.int64), pieces - 1)
    return np.where((known < 0) | (known > seconds), -1, found)


def _p99(values: Column, piece: NDArray[np.int64], pieces: int) -> Column:
    column = np.full(pieces, np.nan)
    order = np.argsort(piece, kind="stable")
    ends = np.searchsorted(piece[order], np.arange(pieces + 1))
    for index in range(pieces):
        within = values[order[ends[index] : ends[index + 1]]]
        if len(within):
            column[index] = np.quantile(within, 0.99, method="inverted_cdf")
    return column
