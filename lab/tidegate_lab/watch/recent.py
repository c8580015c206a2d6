"""Quantiles of the last seconds, from sketches that count since each pod's start."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidegate_operator.observed_sketch import EMPTY, Sketch


class Recent:
    """Differences of cumulative sketches over a sliding window, per boot of a pod, so that no count goes backwards."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._history: deque[tuple[float, dict[str, Sketch]]] = deque()

    def add(self, now: float, by_boot: Mapping[str, Sketch]) -> Sketch:
        """Take in what pods say now; returns what all of them counted within the window.

        A boot that was not there when the watching began counts from zero, one that was from what it had then. A pod
        that cannot be read, or is gone, keeps the last it said.
        """
        before = self._history[-1][1] if self._history else {}
        self._history.append((now, before | dict(by_boot)))
        while len(self._history) > 1 and self._history[1][0] <= now - self._window_s:
            self._history.popleft()
        start, latest = self._history[0][1], self._history[-1][1]
        return Sketch.merged(sketch.since(start.get(boot, EMPTY)) for boot, sketch in latest.items())
