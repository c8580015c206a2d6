"""Two engines taking turns on a machine that others use as well, and what their turns say.

The turns of a pair follow one another at once, so that a busy moment meets both; the ratio is the median over pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tidegate_bench.messages import Timing


@dataclass(frozen=True, slots=True)
class Pair:
    """The same work done by ours and by the peer, one straight after the other."""

    ours: Timing
    peer: Timing


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens a second; `ratio` above 1 means that ours is better."""

    ours: float
    peer: float
    ratio: float
    ratio_low: float
    ratio_high: float
    """the lowest and the highest of the pairs"""
    ours_best: float
    peer_best: float
    """each one's fastest turn: what noise has touched least"""
    ours_cores: float
    peer_cores: float
    """processor seconds a second"""
    others_cores: float
    """what everybody else took meanwhile: where this is not near 0 the figures are of a busy machine"""
    pairs: int
    """that this is made of"""
    disturbed: int
    """pairs left out since others had the processors; where hardly any would be left none is, and this is 0"""


def take_turns(turns: int, ours: Callable[[int], Timing], peer: Callable[[int], Timing]) -> list[Pair]:
    """Pairs of turns; who goes first alternates."""
    pairs: list[Pair] = []
    for turn in range(turns):
        if turn % 2:
            second = peer(turn)
            pairs.append(Pair(ours(turn), second))
        else:
            first = ours(turn)
            pairs.append(Pair(first, peer(turn)))
    return pairs


QUIET = 0.15
"""Processor seconds a second that others may take in a turn that counts: a tenth of two cores is in the noise."""
_FEW = 3
"""Pairs that are needed for a median."""


def quiet(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in which both had the machine to themselves."""
    return [pair for pair in pairs if all(t.others <= QUIET * t.wall for t in (pair.ours, pair.peer))]


def compare(pairs: Sequence[Pair]) -> Comparison:
    """What the pairs say; raises ValueError where there are none."""
    if not pairs:
        raise ValueError("nothing was measured, so nothing can be compared")
    undisturbed = quiet(pairs)
    disturbed = len(pairs) - len(undisturbed) if len(undisturbed) >= _FEW else 0
    pairs = undisturbed if len(undisturbed) >= _FEW else pairs
    mine, theirs = [pair.ours for pair in pairs], [pair.peer for pair in pairs]
    both = mine + theirs
    ours, peer = [rate(timing) for timing in mine], [rate(timing) for timing in theirs]
    ratios = [first / second for first, second in zip(ours, peer, strict=True)]
    return Comparison(
        ours=median(ours),
        peer=median(peer),
        ratio=median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        ours_best=max(ours),
        peer_best=max(peer),
        ours_cores=_share([t.cpu for t in mine], mine),
        peer_cores=_share([t.cpu for t in theirs], theirs),
        others_cores=_share([t.others for t in both], both),
        pairs=len(pairs),
        disturbed=disturbed,
    )


def rate(timing: Timing) -> float:
    """Tokens a second."""
    return timing.tokens / timing.wall


def _share(seconds: Sequence[float], timings: Sequence[Timing]) -> float:
    return sum(seconds) / sum(timing.wall for timing in timings)
