"""Traffic by recipe: a rate over time, how bursty its arrivals are, and where lengths are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.traffic.trace import Trace

DAY_S = 86_400.0
LEAST_CV = 1e-3
"""Below it arrivals are even to the eye, and a gamma's shape would overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Pairs of prompt and answer tokens to draw from, each as likely as the other."""

    prompt: NDArray[np.int32]
    output: NDArray[np.int32]

    @classmethod
    def fixed(cls, prompt: int, output: int) -> Lengths:
        """Every request alike."""
        return cls(np.array([prompt], np.int32), np.array([output], np.int32))

    @classmethod
    def of(cls, trace: Trace) -> Lengths:
        """As another trace has them; a prompt keeps its own answer."""
        return cls(trace.prompt, trace.output)


@dataclass(frozen=True, slots=True)
class Stage:
    """A time of one rate, in requests per second."""

    rate: float
    seconds: float


def stages(name: str, parts: Sequence[Stage], lengths: Lengths, *, cv: float = 1.0, seed: int = 0) -> Trace:
    """One rate after another. `cv` is that of the gaps: 0 a metronome, 1 Poisson, above it bursts (gamma renewals)."""
    if not parts or any(part.rate < 0 or part.seconds <= 0 for part in parts):
        raise ValueError(f"stages {list(parts)}: give rates from 0 and seconds above 0")
    ends = np.concatenate(([0.0], np.cumsum([part.seconds for part in parts])))
    counts = np.concatenate(([0.0], np.cumsum([part.rate * part.seconds for part in parts])))
    return _renewals(name, ends, counts, lengths, cv, seed)


def constant(name: str, rate: float, seconds: float, lengths: Lengths, *, cv: float = 1.0, seed: int = 0) -> Trace:
    """One rate throughout."""
    return stages(name, [Stage(rate, seconds)], lengths, cv=cv, seed=seed)


def on_off(
    name: str, high: Stage, low: Stage, times: int, lengths: Lengths, *, cv: float = 1.0, seed: int = 0
) -> Trace:
    """`low`, then `high`, so many times over."""
    return stages(name, [low, high] * times, lengths, cv=cv, seed=seed)


def slow_day(
    name: str, least: float, most: float, lengths: Lengths, *, seconds: float = DAY_S, cv: float = 1.0, seed: int = 0
) -> Trace:
    """One wave: the least rate at both ends, the most in the middle."""
    if not 0 <= least <= most:
        raise ValueError(f"rates {least:g} and {most:g}: give the lower first, from 0")
    at = np.linspace(0.0, seconds, 2_881)
    mean, swing = (least + most) / 2, (most - least) / 2
    expected = mean * at - swing * seconds / (2 * np.pi) * np.sin(2 * np.pi * at / seconds)
    return _renewals(name, at, expected, lengths, cv, seed)


def _renewals(
    name: str, at: NDArray[np.float64], expected: NDArray[np.float64], lengths: Lengths, cv: float, seed: int
) -> Trace:
    """Arrivals of mean 1 in a time that runs as fast as requests are expected, brought back to seconds."""
    if not 0 <= cv <= 20:
        raise ValueError(f"cv {cv:g}: give a number from 0 to 20")
    random = np.random.default_rng(seed)
    total, shape = float(expected[-1]), 1 / cv**2 if cv > LEAST_CV else np.inf
    turns: list[NDArray[np.float64]] = []
    reached = 0.0
    while reached < total:
        count = int(total - reached) + 64
        gaps = random.gamma(shape, 1 / shape, count) if cv > LEAST_CV else np.ones(count)
        turns.append(reached + np.cumsum(gaps))
        reached = float(turns[-1][-1])
    turn = np.concatenate(turns) if turns else np.empty(0)
    times = np.interp(turn[turn < total], expected, at)
    drawn = random.integers(0, len(lengths.prompt), len(times))
    return Trace(name, times, lengths.prompt[drawn], lengths.output[drawn], float(at[-1]))
