"""Mixed traffic: ours over HTTP, the peer by its batch interface with no HTTP to pay for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tidegate_bench.plan import Traffic, mixed_traffic
from tidegate_bench.workers.continuous_batching import Course

_LOAD = 0.7
"""Of the peer's saturated rate, for the time to the first token."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """What both did with the same requests."""

    requests: int
    new_tokens: int
    rate: float
    """requests a second in the second run"""
    ours_at_once: Course
    peer_at_once: Course
    ours_arriving: Course
    peer_arriving: Course


def measure_mixed(
    requests: int, vocab_size: int, ours: Callable[[Traffic], Course], peer: Callable[[Traffic], Course]
) -> Mixed:
    """All queued at once; then the same requests by the same arrivals, at 70 % of what the peer can do."""
    everything = mixed_traffic(requests, vocab_size, None)
    peer_at_once = peer(everything)
    ours_at_once = ours(everything)
    rate = _LOAD * requests / peer_at_once.wall
    arriving = mixed_traffic(requests, vocab_size, rate)
    return Mixed(requests, everything.new_tokens, rate, ours_at_once, peer_at_once, ours(arriving), peer(arriving))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def traffic_json(traffic: Traffic) -> str:
    """As the peer's worker reads it."""
    return json.dumps(asdict(traffic))
