"""Traces made of traces: a part of one, at another rate, with nothing else changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidegate_lab.traffic.trace import Trace

SHIFT_S = 5.0
"""Copies of a trace are laid over it up to this much later: bursts add up roughly, as of many users, not exactly."""


def cut(trace: Trace, start: float, seconds: float) -> Trace:
    """The requests of `seconds` from `start` on, whose time counts from there."""
    if start < 0 or seconds <= 0 or start >= trace.seconds:
        raise ValueError(f"start {start:g} and seconds {seconds:g}: the trace {trace.name} has {trace.seconds:g} s")
    first, end = np.searchsorted(trace.at, (start, start + seconds))
    return Trace(
        name=f"{trace.name}[{start:g}+{seconds:g}]",
        at=trace.at[first:end] - start,
        prompt=trace.prompt[first:end],
        output=trace.output[first:end],
        seconds=min(seconds, trace.seconds - start),
    )


def at_times_the_rate(trace: Trace, factor: float, seed: int = 0) -> Trace:
    """The same traffic from `factor` times as many users.

    Below 1, each request is kept with that probability. Above, whole copies are added, each later by a random few
    seconds (what runs over the end comes at the beginning), and of the last one a share.
    """
    if not factor > 0:
        raise ValueError(f"factor {factor:g}: give a number above 0")
    if factor == 1:
        return trace
    random = np.random.default_rng(seed)
    everybody = np.arange(len(trace))
    rows, times = [], []
    whole = int(factor)
    for copy in range(whole + 1):
        kept = everybody if copy < whole else everybody[random.random(len(trace)) < factor - whole]
        shift = 0.0 if copy == 0 else random.uniform(0.0, SHIFT_S)
        rows.append(kept)
        times.append((trace.at[kept] + shift) % trace.seconds if shift else trace.at[kept])
    at, row = np.concatenate(times), np.concatenate(rows)
    order = np.argsort(at, kind="stable")
    row = row[order]
    return replace(
        trace, name=f"{trace.name}*{factor:g}", at=at[order], prompt=trace.prompt[row], output=trace.output[row]
    )
