"""Finding the least of a function that has no derivative, by Nelder and Mead, "A simplex method", 1965."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Point = NDArray[np.float64]


def least(
    function: Callable[[Point], float], start: Sequence[float] | Point, steps: Sequence[float], *, rounds: int = 200
) -> tuple[Point, float]:
    """Where the function is least near `start`, and what it is there. `steps`: how far to look at first, by axis."""
    first = np.array(start, dtype=np.float64)
    corners = [first, *(first + np.eye(len(first))[axis] * step for axis, step in enumerate(steps))]
    simplex = [(function(corner), corner) for corner in corners]
    for _ in range(rounds):
        simplex.sort(key=lambda corner: corner[0])
        (best, _), (second, _), (worst, point) = simplex[0], simplex[-2], simplex[-1]
        if worst - best < 1e-7:
            break
        middle = np.mean([corner for _, corner in simplex[:-1]], axis=0)

        def along(share: float, middle: Point = middle, point: Point = point) -> tuple[float, Point]:
            there = middle + share * (point - middle)
            return function(there), there

        mirrored = along(-1.0)
        if mirrored[0] < best:
            simplex[-1] = min(mirrored, along(-2.0), key=lambda corner: corner[0])
        elif mirrored[0] < second:
            simplex[-1] = mirrored
        else:
            nearer = along(0.5)
            if nearer[0] < worst:
                simplex[-1] = nearer
            else:
                kept = simplex[0][1]
                halved = [kept + 0.5 * (corner - kept) for _, corner in simplex[1:]]
                simplex[1:] = [(function(corner), corner) for corner in halved]
    value, point = min(simplex, key=lambda corner: corner[0])
    return point, value
