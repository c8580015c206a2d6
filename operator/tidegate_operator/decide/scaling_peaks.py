"""Peaks that come again: how far back arrivals must be looked at, so that what they need is not given up between them.

Each return costs a cold start of late requests; replicas that are kept from one to the next cost less than it seems.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate_operator.decide.scaling_memory import Memory, Moment
from tidegate_operator.decide.scaling_needs import Needs

SHORTEST_HOLD_S = 120.0
"""What is looked at in any case."""
LONGEST_HOLD_S = 1800.0
FADES_S = 2 * 3600.0
"""A return that is not seen again is forgotten within hours."""
GROWTH = 1.25
LEAST_GROWTH = 2
"""One replica more or less is chance."""
SAME = 0.9
MARGIN = 1.5


def with_peak(memory: Memory, needs: Needs, seconds: float, now: float) -> Memory:
    """If so many replicas were needed before, and fewer in between, learn after how long."""
    learned, window = memory.learned, memory.window
    if learned.hold_s:
        left = learned.hold_s * math.exp(-seconds / FADES_S)
        learned = replace(learned, hold_s=left if left > SHORTEST_HOLD_S else 0.0)
    needed = needs.level
    before = max((m.at for m in window.peaks if m.replicas >= SAME * needed), default=None)
    risen = needed >= max(GROWTH * needs.level_before, needs.level_before + LEAST_GROWTH)
    if risen and before is not None and now - before > SHORTEST_HOLD_S:
        learned = replace(learned, hold_s=max(learned.hold_s, min(LONGEST_HOLD_S, MARGIN * (now - before))))
    peaks = tuple(m for m in window.peaks if m.replicas > needed and m.at > now - LONGEST_HOLD_S)
    return Memory(learned=learned, window=replace(window, peaks=(*peaks, Moment(at=now, replicas=needed))))
