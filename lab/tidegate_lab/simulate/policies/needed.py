"""How many replicas traffic truly needs, for who may know it: the base of the oracle and of what is unavoidable.

A full replica runs N requests at a time: as many as its slots, its KV cache and the target of TPOT bear. Its step then
takes T = a + b·N + c·N·k, with k the mean tokens a running request holds. A request of P tokens in and O out costs
(a / budget + b)·P + O·T/N seconds of a replica, the first part as it comes and the rest while it is answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.policies.plans import Plan
from tidegate_lab.traffic.trace import Trace

GRID_S = 5.0
"""Plans change only so often."""

Series = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullReplica:
    """An engine at its best with this traffic."""

    batch: float
    """Requests that run at a time."""
    step_s: float
    """Seconds of a step that only decodes."""
    prompt_token_s: float
    answer_token_s: float
    stretch: float
    """By how much prefills in between lengthen an answer."""

    @classmethod
    def of(cls, engine: EngineModel, trace: Trace, tpot_s: float | None) -> FullReplica:
        step = engine.step
        outputs = trace.output.astype(float)
        kept = float((outputs * (trace.prompt + outputs / 2)).sum() / outputs.sum())
        most = min(float(engine.slots), engine.kv_tokens / kept)
        if tpot_s is not None:
            most = min(most, (tpot_s - step.a) / (step.b + step.c * kept))
        batch = max(1.0, most)
        seconds = step.a + batch * (step.b + step.c * kept)
        prompt_s, answer_s = step.a / engine.token_budget + step.b, seconds / batch
        prefill, decode = prompt_s * float(trace.prompt.sum()), answer_s * float(outputs.sum())
        return cls(
            batch=batch,
            step_s=seconds,
            prompt_token_s=prompt_s,
            answer_token_s=answer_s,
            stretch=(prefill + decode) / decode,
        )

    def answer_s(self, output: Series) -> Series:
        """How long answers of so many tokens take."""
        return np.asarray(output * self.step_s * self.stretch)


def work_over_time(trace: Trace, full: FullReplica) -> Series:
    """Busy replicas by piece of the grid, each request's work where it is done."""
    count = math.ceil(trace.seconds / GRID_S) + 1
    work = np.bincount((trace.at // GRID_S).astype(int), full.prompt_token_s * trace.prompt, count)
    output = trace.output.astype(float)
    took = np.maximum(full.answer_s(output), 1e-9)
    done = full.answer_token_s * output / took
    spread = _integral(trace.at, done, count) - _integral(trace.at + took, done, count)
    return np.asarray((work + np.diff(spread, prepend=0.0)) / GRID_S)


def _integral(since: Series, rate: Series, count: int) -> Series:
    """Of rates that begin at these times, up to the end of each piece of the grid."""
    piece = np.minimum((since // GRID_S).astype(int), count)
    rates = np.cumsum(np.bincount(piece, rate, count + 1)[:count])
    moments = np.cumsum(np.bincount(piece, rate * since, count + 1)[:count])
    return np.asarray(rates * GRID_S * np.arange(1, count + 1) - moments)


def work_of_arrivals(trace: Trace, full: FullReplica) -> Series:
    """Busy replicas by piece of the grid if all of a request's work were due as it arrives: the rate, in replicas."""
    count = math.ceil(trace.seconds / GRID_S) + 1
    costs = full.prompt_token_s * trace.prompt + full.answer_token_s * trace.output
    return np.asarray(np.bincount((trace.at // GRID_S).astype(int), costs, count) / GRID_S)


def averaged(work: Series, window_s: float, borders: Sequence[float] = ()) -> Series:
    """Mean over a window about each piece, which never reaches over a border."""
    half = round(window_s / GRID_S / 2)
    total = np.concatenate(([0.0], np.cumsum(work)))
    index = np.arange(len(work))
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, len(work))
    for border in borders:
        edge = round(border / GRID_S)
        first = np.where(index >= edge, np.maximum(first, edge), first)
        last = np.where(index < edge, np.minimum(last, edge), last)
    return np.asarray((total[last] - total[first]) / (last - first))


def without_gaps(replicas: NDArray[np.int64], gap_s: float) -> NDArray[np.int64]:
    """Valleys no longer than `gap_s` filled: to remove a replica and start it again would cost more than it saves."""
    width = round(gap_s / GRID_S)
    if width < 1:
        return replicas
    padded = np.concatenate((np.zeros(width, int), replicas, np.zeros(width, int)))
    windows = np.lib.stride_tricks.sliding_window_view
    raised = windows(padded, width + 1).max(axis=1)
    return np.asarray(windows(raised, width + 1).min(axis=1))


def planned(work: Series, utilisation: float, *, lead_s: float, gap_s: float) -> Plan:
    """Enough replicas for the work at this utilisation, each asked for `lead_s` before it is needed."""
    needed = np.maximum(np.ceil(work / utilisation - 1e-9), 1).astype(int)
    needed = without_gaps(needed, gap_s)
    early = math.ceil(lead_s / GRID_S)
    # What rises is asked for early; what falls goes when it falls.
    window = np.lib.stride_tricks.sliding_window_view
    ahead = window(np.concatenate((needed, np.full(early, needed[-1]))), early + 1).max(axis=1)
    changed = np.flatnonzero(np.diff(ahead, prepend=-1))
    return Plan(tuple(float(i * GRID_S) for i in changed), tuple(int(ahead[i]) for i in changed))
