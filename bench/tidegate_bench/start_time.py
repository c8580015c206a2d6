"""Process start to first token, beside a bare `import torch` of the same minute."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds, medians over the rounds."""

    engine: float
    import_torch: float
    ratio: float
    """engine over import, the median of pairs"""
    parts: dict[str, float]
    """of the engine's last start, in its own words"""


def measure_starts(rounds: int, engine: Callable[[], tuple[float, list[str]]], bare: Callable[[], None]) -> Starts:
    """Alternate engine and bare import. `engine` gives seconds and what it logged.

    The first of each only fills the caches of files.
    """
    engine()
    bare()
    pairs: list[tuple[float, float]] = []
    said: list[str] = []
    for _ in range(rounds):
        took, said = engine()
        pairs.append((took, seconds_of(bare)))
    return Starts(
        engine=median(first for first, _ in pairs),
        import_torch=median(second for _, second in pairs),
        ratio=median(first / second for first, second in pairs),
        parts=parts_of(said),
    )


def seconds_of(work: Callable[[], None]) -> float:
    """How long it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def parts_of(said: list[str]) -> dict[str, float]:
    """The parts of a start as the engine's log has them; its lines are JSON."""
    lines = [json.loads(line) for line in said if line.startswith("{")]
    parts: dict[str, float] = next((line["parts"] for line in lines if line.get("event") == "ready"), {})
    return parts
