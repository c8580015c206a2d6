"""Finding the step model with which the simulator repeats a measured run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.calibrate.score import latencies, quantiles
from tidegate_lab.calibrate.search import Point, least
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.fixed import Served, serve_with

_SHARES = ((0.6, 0.2, 0.2), (0.3, 0.5, 0.2), (0.2, 0.2, 0.6))
"""Of a usual step's time: what is fixed, what is for tokens computed, what for tokens held. Places to start from."""
_MISSED = 100.0
"""Loss of a model under which a request is refused."""


class FitError(ValueError):
    """No model can be found for this run; the message is one line."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The engine found, and the mean deviation of its figures from those measured, as a logarithm."""

    engine: EngineModel
    loss: float


def fit(measured: Served, engine: EngineModel, rows: slice, *, kv_tokens_too: bool = False) -> Fitted:
    """Fit the engine's step model to some of a run's requests; the others are simulated, and not looked at.

    `kv_tokens_too`: also how many tokens its cache holds, which matters where requests were preempted: a replica that
    admits by another rule than our scheduler behaves as one of a slightly other size. Raises FitError.
    """
    true = _Truth(measured, rows)

    def made(point: Point) -> EngineModel:
        a, b, c = np.exp(point[:3]).tolist()
        blocks = engine.kv_tokens // engine.block_size
        if kv_tokens_too:
            blocks = max(1, round(blocks * float(np.exp(point[3]))))
        return replace(engine, step=StepModel(a, b, c), kv_tokens=blocks * engine.block_size)

    def loss(point: Point) -> float:
        if np.abs(point).max() > 60:  # e**60 seconds
            return _MISSED
        return true.loss(serve_with(1, measured.trace, made(point)))

    found: list[tuple[Point, float]] = []
    for start in _starts(measured, engine):
        point, value = np.append(np.log(start), 0.0)[: 3 + kv_tokens_too], _MISSED
        for _ in range(3):  # a simplex may have shrunk too early: open it again where it ended
            point, value = least(loss, point, (0.15, 0.15, 0.2, 0.01)[: len(point)], rounds=150)
        found.append((point, value))
    point, value = min(found, key=lambda pair: pair[1])
    if value >= _MISSED:
        longest = int((measured.trace.prompt + measured.trace.output).max())
        raise FitError(
            f"under no model does every request end; the longest holds {longest} tokens, and the cache "
            f"{engine.kv_tokens}: give --kv-tokens and --slots as the engine that was measured has them"
        )
    return Fitted(made(point), value)


class _Truth:
    """What was measured of the requests that are looked at."""

    def __init__(self, measured: Served, rows: slice) -> None:
        self._rows = rows
        self._each = [_log(values) for values in latencies(measured, rows) if len(values)]
        self._quantiles = _log(quantiles(measured, rows))

    def loss(self, simulated: Served) -> float:
        """Quantiles are what is promised; every request by itself tells the coefficients apart."""
        each = [_log(values) for values in latencies(simulated, self._rows) if len(values)]
        if not all(np.isfinite(values).all() for values in each):
            return _MISSED
        off = _log(quantiles(simulated, self._rows)) - self._quantiles
        requests = sum(float(np.abs(ours - true).mean()) for ours, true in zip(each, self._each, strict=True))
        sorted_ones = sum(
            float(np.abs(np.sort(ours) - np.sort(true)).mean()) for ours, true in zip(each, self._each, strict=True)
        )
        return float(np.square(off).sum()) + requests + sorted_ones


def _log(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(seconds, 1e-6)))


def _starts(measured: Served, engine: EngineModel) -> list[tuple[float, float, float]]:
    """Step models under which a step of usual size takes as long as tokens were apart."""
    trace = measured.trace
    pace = float(np.median(measured.tpot[trace.output > 1])) if (trace.output > 1).any() else 0.01
    spent = float(measured.finished_at.max())
    if not (pace > 0 and spent > 0):
        raise FitError("tokens took no time at all: are the columns of first and last tokens the right ones?")
    running = min(engine.slots, max(1.0, float((measured.finished_at - measured.first_token_at).sum()) / spent))
    held = min(engine.kv_tokens, running * float((trace.prompt + trace.output / 2).mean()))
    computed = float((trace.prompt.sum() + trace.output.sum()) / spent) * pace
    return [(pace * a, pace * b / computed, pace * c / held) for a, b, c in _SHARES]
