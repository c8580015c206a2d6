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

    @classmethod
    def of(cls, outcome: Outcome) -> Series:
        """At most 300 pieces, none shorter than two looks."""
        trace, moments = outcome.scenario.trace, outcome.moments
        apart = moments[0].at if moments else trace.seconds
        pieces = int(max(1, min(_PIECES, trace.seconds // (2 * apart))))
        width = trace.seconds / pieces
        arrived = _piece(trace.at, width, pieces)
        came = np.bincount(arrived[arrived >= 0], minlength=pieces)
        missed = np.bincount(arrived[~outcome.attained & (arrived >= 0)], minlength=pieces)
        looked = _piece(np.array([moment.at for moment in moments]), width, pieces)
        several = trace.output > 1

        def last(values: list[int]) -> Column:
            column = np.full(pieces, np.nan)
            column[looked] = values
            return column

        with np.errstate(invalid="ignore"):
            share = missed / came
        return cls(
            width=width,
            arrivals_per_s=came / width,
            wanted=last([moment.choice.replicas for moment in moments]),
            ready=last([moment.ready for moment in moments]),
            waiting=last([moment.waiting for moment in moments]),
            running=last([moment.running for moment in moments]),
            ttft_p99=_p99(outcome.ttft, _piece(outcome.first_token_at, width, pieces), pieces),
            tpot_p99=_p99(outcome.tpot[several], _piece(outcome.finished_at[several], width, pieces), pieces),
            missed=share,
        )


def _piece(times: Column, width: float, pieces: int) -> NDArray[np.int64]:
    """Which piece each time is in; -1: in none."""
    known = np.nan_to_num(times, nan=-1.0)
    found = np.floor(known / width).astype(np.int64)
    return np.where((known < 0) | (found >= pieces), -1, found)


def _p99(values: Column, piece: NDArray[np.int64], pieces: int) -> Column:
    column = np.full(pieces, np.nan)
    order = np.argsort(piece, kind="stable")
    ends = np.searchsorted(piece[order], np.arange(pieces + 1))
    for index in range(pieces):
        within = values[order[ends[index] : ends[index + 1]]]
        if len(within):
            column[index] = np.quantile(within, 0.99, method="inverted_cdf")
    return column
