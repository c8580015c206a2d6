"""What a step costs here: `seconds = a + b * new_tokens + c * kv_tokens`, learned while stepping.

Recursive least squares with forgetting, in information form: decayed sums of products, of which the coefficients are
the solution. Each class of step sizes forgets by itself, at its own steps: an hour in which only single tokens were
decoded would else blow up what is known of prompts. Errors count relative to the step, so that short steps matter as
much as long ones; steps far off (another process had the core) weigh less, after Huber, "Robust estimation of a
location parameter", 1964. Negative coefficients, which noise can give, are excluded by trying every set of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from tidegate_engine.link.messages import StepCost

_KEPT = 0.95
"""Of what a class knows, at each of its steps: it remembers about 20."""
_ERROR_KEPT = 0.9
"""Quicker, so that a machine that has become slower soon stops to look like steps that were interrupted."""
_LEAST_STEPS = 16
_REFIT_EVERY = 8
_TOLERATED = 3.0
"""Times the usual error; what is farther off counts as if it were that far."""
_LEAST_TOLERATED = 0.1
_PREFERENCE = np.array([1e-9, 1e-6, 1e-6])
"""Where the data cannot tell the coefficients apart, cost is taken to be fixed; too weak to be seen otherwise."""
_SUPPORTS = tuple(chain.from_iterable(combinations(range(3), size) for size in (3, 2, 1)))

_Array = NDArray[np.float64]


@dataclass(slots=True)
class _Class:
    """Steps of similar size; rows are divided by the class's usual duration, so that errors are relative."""

    usual: float
    products: _Array = field(default_factory=lambda: np.zeros((3, 3)))
    targets: _Array = field(default_factory=lambda: np.zeros(3))

    def take(self, row: _Array, seconds: float, weight: float) -> None:
        self.usual += (1 - _KEPT) * weight * (seconds - self.usual)
        scaled = row / self.usual
        self.products = _KEPT * self.products + weight * np.outer(scaled, scaled)
        self.targets = _KEPT * self.targets + weight * scaled * (seconds / self.usual)


class StepModel:
    """Fed with every step; the cost is None until enough of them were seen."""

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._steps = 0
        self._error = 0.0
        self.cost: StepCost | None = None

    def observe(self, new_tokens: int, kv_tokens: int, seconds: float) -> None:
        """A step computed `new_tokens` for requests that hold `kv_tokens` after it, in so many seconds."""
        if seconds <= 0.0 or new_tokens < 1:
            return
        weight = 1.0
        if self.cost is not None:
            expected = self.cost.seconds(new_tokens, kv_tokens)
            off = abs(seconds - expected) / max(expected, 1e-9)
            limit = max(_TOLERATED * self._error, _LEAST_TOLERATED)
            weight = min(1.0, limit / off) if off else 1.0
            self._error += (1 - _ERROR_KEPT) * (min(off, limit) - self._error)
        size = new_tokens.bit_length()
        row = np.array([1.0, new_tokens, kv_tokens])
        self._classes.setdefault(size, _Class(seconds)).take(row, seconds, weight)
        self._steps += 1
        if self._steps >= _LEAST_STEPS and self._steps % _REFIT_EVERY == 0:
            self._fit()

    def _fit(self) -> None:
        products = sum((known.products for known in self._classes.values()), np.zeros((3, 3)))
        targets = sum((known.targets for known in self._classes.values()), np.zeros(3))
        # Columns of one size: kv_tokens may be a million times the constant.
        scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
        products, targets = (
            products / np.outer(scale, scale) + np.diag(_PREFERENCE * len(self._classes)),
            targets / scale,
        )
        best, least = np.zeros(3), 0.0
        for support in _SUPPORTS:
            chosen = list(support)
            found = np.zeros(3)
            found[chosen] = np.linalg.solve(products[np.ix_(chosen, chosen)], targets[chosen])
            loss = float(found @ products @ found - 2 * found @ targets)
            if found.min() >= 0.0 and loss < least:
                best, least = found, loss
        a, b, c = (best / scale).tolist()
        self.cost = StepCost(a, b, c, round(self._error, 4))
