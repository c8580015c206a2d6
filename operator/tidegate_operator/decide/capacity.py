"""How much load one replica carries: queueing theory for a replica that serves `slots` requests side by side."""

from __future__ import annotations

import functools
import math

HIGHEST_UTILISATION = 0.9
LOWEST_UTILISATION = 0.3


def mean_queue(slots: int, utilisation: float) -> float:
    """Requests waiting on average at one replica (M/M/slots, Erlang C). Infinite from utilisation 1."""
    if utilisation >= 1:
        return math.inf
    offered = slots * utilisation
    blocked = 1.0
    for servers in range(1, slots + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    must_wait = blocked / (1 - utilisation * (1 - blocked))
    return must_wait * utilisation / (1 - utilisation)


@functools.lru_cache(maxsize=1024)
def safe_utilisation(slots: int, queue_depth: float) -> float:
    """The highest share of its throughput at which a replica's mean queue stays within `queue_depth`.

    4 slots and a queue of 2 give 0.78, 64 slots 0.89.
    """
    slots = min(max(1, slots), 256)
    low, high = LOWEST_UTILISATION, HIGHEST_UTILISATION
    if mean_queue(slots, high) <= queue_depth:
        return high
    for _ in range(20):
        middle = (low + high) / 2
        if mean_queue(slots, middle) <= queue_depth:
            low = middle
        else:
            high = middle
    return low


def replicas_for(load: float, utilisation: float) -> int:
    """Replicas that carry `load` (in replicas running flat out) at no more than this utilisation; 0 for no load."""
    return max(0, math.ceil(round(load / utilisation, 6)))


def utilisation_bound(in_system: float) -> float:
    """The utilisation a replica with this many requests inside, on average, has at most: N / (1 + N).

    A processor-sharing server has exactly this, whatever the lengths of requests (M/G/1-PS); one that gains by
    batching has less.
    """
    return in_system / (1 + in_system)
