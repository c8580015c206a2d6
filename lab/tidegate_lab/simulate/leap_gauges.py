"""What a report says of the requests that are inside a replica now, compiled."""

from __future__ import annotations

from math import ceil, isnan, log, nan

import numpy as np
from numba import njit
from numpy.typing import NDArray
from tidegate_operator.observed_sketch import GAMMA

from tidegate_lab.simulate.leap_state import Tables

Binned = tuple[int, NDArray[np.int64], NDArray[np.int64]]
_LOG_GAMMA = log(GAMMA)


@njit(cache=True)
def oldest(tables: Tables, row: int) -> tuple[float, float]:
    """When the oldest request that waits for its first token, and the oldest of all, got to this replica; NaN: none."""
    replica, requests = tables.replicas[row], tables.requests
    waiting = unfinished = nan
    index = replica.head
    for place in range(replica.running + replica.waiting):
        if place < replica.running:
            request = requests[tables.running[row, place]]
        else:
            request = requests[index]
            index = request.next
        if place == 0:
            unfinished = request.sent
        if isnan(request.first):
            waiting = request.sent
            break
    return waiting, unfinished


@njit(cache=True)
def sketched_now(tables: Tables, row: int, now: float) -> tuple[Binned, Binned]:
    """Seconds that requests have waited for a first token; seconds a token so far, of those with two or more."""
    replica, requests = tables.replicas[row], tables.requests
    inside = replica.running + replica.waiting
    ages, paces = np.empty(inside), np.empty(inside)
    waiting = going = 0
    index = replica.head
    for place in range(inside):
        lag = 0
        if place < replica.running:
            request = requests[tables.running[row, place]]
            lag = replica.lag
        else:
            request = requests[index]
            index = request.next
        if isnan(request.first):
            ages[waiting] = now - request.sent
            waiting += 1
            continue
        tokens = request.tokens + lag - request.prompt
        last = replica.stepped if lag else request.last
        if tokens > 1:
            paces[going] = (last - request.first) / (tokens - 1)
            going += 1
    return _binned(ages[:waiting]), _binned(paces[:going])


@njit(cache=True)
def _binned(values: NDArray[np.float64]) -> Binned:
    """How many are about nothing, and of the others the bins in order and how many each has."""
    keys = np.empty(len(values), np.int64)
    kept = 0
    for value in values:
        if value > 1e-6:
            keys[kept] = ceil(log(value) / _LOG_GAMMA)
            kept += 1
    keys = np.sort(keys[:kept])
    bins, counts = np.empty(kept, np.int64), np.zeros(kept, np.int64)
    last = -1
    for key in keys:
        if last < 0 or bins[last] != key:
            last += 1
            bins[last] = key
        counts[last] += 1
    return len(values) - kept, bins[: last + 1], counts[: last + 1]
