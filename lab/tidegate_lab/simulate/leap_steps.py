"""All replicas between two moments, compiled: the scheduler, for answers of known length and no shared prefixes.

What a batch is made of is looked at only when it can change. Between two such moments every running request gains one
token a step and a step costs a few additions: those of the step model, in the same order as the exact engine makes
them, so that times are equal to the last bit. Which block each request is about to fill is counted once, by tokens
modulo the block size, and tells for all steps to come how many blocks they take.

All that run came before all that wait: who is admitted is the first that waits, who is preempted the last that runs.

One module, since numba keeps compiled code by file, and would not notice a change of what is called in another.
"""

from __future__ import annotations

from math import ceil, isnan, log

import numpy as np
from numba import njit
from numpy.typing import NDArray
from tidegate_operator.observed_sketch import GAMMA

from tidegate_lab.simulate.leap_state import LOWEST, WIDTH, Row, Rows, Rules, Tables

NONE, FULL, GLIDING = 0, 1, 2
TTFT, TPOT, E2E = 0, 1, 2
LEAST, RANDOM, ROUND_ROBIN = 0, 1, 2
_LOG_GAMMA = log(GAMMA)


@njit(cache=True)
def serve(rules: Rules, tables: Tables, until: float) -> None:
    """Let time pass up to `until`; a request that comes at that very moment is left for the next call."""
    traffic = tables.traffic[0]
    requests = tables.requests
    while traffic.next < len(requests) and requests[traffic.next].at < until:
        at = requests[traffic.next].at
        _advance_all(rules, tables, at)
        _route(rules, tables, traffic.next, at)
        traffic.next += 1
    _advance_all(rules, tables, until)


@njit(cache=True)
def release(rules: Rules, tables: Tables, now: float) -> None:
    """Give what is held to the replicas that are ready, in order of arrival."""
    traffic = tables.traffic[0]
    left = traffic.held
    traffic.held = 0
    while left > 0:
        index = traffic.head
        traffic.head = tables.requests[index].next
        _route(rules, tables, index, now)
        left -= 1


@njit(cache=True)
def _advance_all(rules: Rules, tables: Tables, until: float) -> None:
    for row in range(tables.traffic[0].rows):
        if tables.replicas[row].open:
            _advance(rules, tables, row, until)


@njit(cache=True)
def _route(rules: Rules, tables: Tables, index: int, now: float) -> None:
    traffic = tables.traffic[0]
    row = _chosen(tables.replicas, traffic, index)
    if row < 0:
        if traffic.held == 0:
            traffic.head = index
        else:
            tables.requests[traffic.tail].next = index
        tables.requests[index].next = -1
        traffic.tail = index
        traffic.held += 1
        return
    traffic.turn += 1
    tables.replicas[row].routed = traffic.turn
    _submit(rules, tables, row, index, now)


@njit(cache=True)
def _chosen(replicas: Rows, traffic: Row, index: int) -> int:
    """The row of the replica that gets it, of equals the one given something longest ago; -1: none is ready."""
    skip = 0
    if traffic.routing == RANDOM:
        ready = 0
        for row in range(traffic.rows):
            ready += replicas[row].ready
        if ready == 0:
            return -1
        skip = int(mixed(traffic.seed, index) % np.uint64(ready))
    best = -1
    for row in range(traffic.rows):
        replica = replicas[row]
        if not replica.ready:
            continue
        if traffic.routing == RANDOM:
            # The order of numbers, whatever rows they have.
            before = 0
            for other in range(traffic.rows):
                if replicas[other].ready and replicas[other].number < replica.number:
                    before += 1
            if before == skip:
                return row
            continue
        if best < 0:
            best = row
            continue
        inside = replica.running + replica.waiting
        least = replicas[best].running + replicas[best].waiting
        if traffic.routing == ROUND_ROBIN or inside == least:
            if replica.routed < replicas[best].routed:
                best = row
        elif inside < least:
            best = row
    return best


@njit(cache=True)
def mixed(seed: int, index: int) -> np.uint64:
    """A number that looks random, by its place alone. Source: splitmix64 (Steele, Lea, Flood, 2014)."""
    z = np.uint64(seed) + np.uint64(index + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _blocks_for(tokens: int, size: int) -> int:
    """Blocks that so many tokens take."""
    return (tokens + size - 1) // size


@njit(cache=True)
def _count(bins: NDArray[np.int32], seconds: float) -> None:
    """Count a duration in its bin."""
    column = 0
    if seconds > 1e-6:
        column = min(max(ceil(log(seconds) / _LOG_GAMMA) - LOWEST, 1), WIDTH - 1)
    bins[column] += 1


@njit(cache=True)
def _submit(rules: Rules, tables: Tables, row: int, index: int, now: float) -> None:
    """Queue a request; one that could never run, or finds the queue full, is refused."""
    replica, requests = tables.replicas[row], tables.requests
    request = requests[index]
    replica.received += 1
    fits = _blocks_for(request.prompt + request.output - 1, rules.block) <= rules.blocks
    if not fits or (rules.most_queued >= 0 and replica.running + replica.waiting >= rules.slots + rules.most_queued):
        replica.rejected += 1
        return
    request.sent = now
    request.next = -1
    if replica.waiting == 0:
        replica.head = index
        replica.quiet = 0
    else:
        requests[replica.tail].next = index
    replica.tail = index
    replica.waiting += 1
    replica.unfirst += 1
    if replica.flight == NONE and replica.clock < now:
        replica.clock = now


@njit(cache=True)
def _advance(rules: Rules, tables: Tables, row: int, until: float) -> None:
    """Run the steps that begin before `until`; one that ends after it stays under way."""
    replica = tables.replicas[row]
    while True:
        if replica.flight != NONE:
            if replica.ends > until:
                return
            replica.clock = replica.stepped = replica.ends
            if replica.flight == GLIDING:
                replica.steps += 1
                replica.generated_tokens += replica.running
                replica.lag += 1
                replica.left -= 1
                replica.flight = NONE
                if replica.left == 0:
                    _catch_up(tables, row)
                    _retire(rules, tables, row)
            else:
                replica.steps += 1
                replica.flight = NONE
                _commit(tables, row)
                _retire(rules, tables, row)
        if replica.running + replica.waiting == 0 or replica.clock >= until:
            return
        if replica.quiet == 0:
            _catch_up(tables, row)
            _settle(rules, tables, row)
            if replica.quiet == 0 and not _begin(rules, tables, row):
                replica.clock = until
                return
        if replica.quiet != 0:
            _glide(rules, tables, row, until)


@njit(cache=True)
def _settle(rules: Rules, tables: Tables, row: int) -> None:
    """Find out whether each request that runs only decodes and nobody can be admitted: then steps are quiet."""
    replica, requests, due = tables.replicas[row], tables.requests, tables.due[row]
    n, size = replica.running, rules.block
    if n == 0 or n > rules.budget:
        return
    if replica.waiting > 0 and n < rules.slots:
        needed = _blocks_for(requests[replica.head].tokens, size)
        if needed + n <= replica.free:
            return
    due[:] = 0
    held, left = 0, 1 << 60
    for place in range(n):
        request = requests[tables.running[row, place]]
        if request.computed != request.tokens - 1 or isnan(request.first):
            return
        due[(size - request.computed % size) % size] += 1
        held += request.computed
        left = min(left, request.output - (request.tokens - request.prompt))
    if due[0] > replica.free:
        return
    replica.quiet, replica.lag, replica.left, replica.held = 1, 0, left, held


@njit(cache=True)
def _glide(rules: Rules, tables: Tables, row: int, until: float) -> None:
    """Quiet steps, up to the first finish, the first lack of blocks, or the time."""
    replica, due = tables.replicas[row], tables.due[row]
    n, size = replica.running, rules.block
    free, held, lag, left, clock = replica.free, replica.held, replica.lag, replica.left, replica.clock
    a, b, c = rules.a, rules.b, rules.c
    before = lag
    phase = lag % size
    while left > 0 and clock < until:
        needed = due[phase]
        if needed > free:
            replica.quiet = 0
            break
        free -= needed
        held += n
        ends = clock + (a + b * n + c * held)
        if ends > until:
            replica.flight, replica.ends = GLIDING, ends
            break
        clock = ends
        lag += 1
        left -= 1
        phase += 1
        if phase == size:
            phase = 0
    replica.free, replica.held, replica.lag, replica.left = free, held, lag, left
    if lag > before:
        replica.clock = replica.stepped = clock
        replica.steps += lag - before
        replica.generated_tokens += n * (lag - before)
    if left == 0:
        _catch_up(tables, row)
        _retire(rules, tables, row)


@njit(cache=True)
def _catch_up(tables: Tables, row: int) -> None:
    """Write quiet steps into the requests."""
    replica, requests = tables.replicas[row], tables.requests
    if replica.lag:
        for place in range(replica.running):
            request = requests[tables.running[row, place]]
            request.tokens += replica.lag
            request.computed += replica.lag
            request.last = replica.clock
        replica.lag = 0
    replica.quiet = 0


@njit(cache=True)
def _begin(rules: Rules, tables: Tables, row: int) -> bool:
    """Make a step as the scheduler does, request by request; False: there is none to make."""
    replica, requests, running = tables.replicas[row], tables.requests, tables.running[row]
    size, budget = rules.block, rules.budget
    new, held, preempted, place = 0, 0, 0, 0
    while place < replica.running and budget > 0:
        index = running[place]
        request = requests[index]
        chunk = min(request.tokens - request.computed, budget)
        needed = _blocks_for(request.computed + chunk, size) - _blocks_for(request.computed, size)
        last = -1
        while needed > replica.free and last != index:
            last = _preempt(rules, tables, row)
            preempted += 1
        if last == index:
            break
        replica.free -= needed
        request.computed += chunk
        held += request.computed
        new += chunk
        budget -= chunk
        place += 1
    while preempted == 0 and budget > 0 and replica.waiting > 0 and replica.running < rules.slots:
        index = replica.head
        request = requests[index]
        if _blocks_for(request.tokens, size) + replica.running > replica.free:
            break
        replica.head = request.next
        replica.waiting -= 1
        running[replica.running] = index
        replica.running += 1
        chunk = min(request.tokens, budget)
        replica.free -= _blocks_for(chunk, size)
        request.computed = chunk
        held += chunk
        new += chunk
        budget -= chunk
    replica.preemptions += preempted
    if new == 0:
        return False
    replica.held = held
    replica.ends = replica.clock + (rules.a + rules.b * new + rules.c * held)
    replica.flight = FULL
    return True


@njit(cache=True)
def _preempt(rules: Rules, tables: Tables, row: int) -> int:
    """The last that runs gives its blocks back and is the first that waits."""
    replica, requests = tables.replicas[row], tables.requests
    replica.running -= 1
    index = tables.running[row, replica.running]
    request = requests[index]
    replica.free += _blocks_for(request.computed, rules.block)
    request.computed = 0
    if replica.waiting == 0:
        request.next = -1
        replica.tail = index
    else:
        request.next = replica.head
    replica.head = index
    replica.waiting += 1
    return int(index)


@njit(cache=True)
def _commit(tables: Tables, row: int) -> None:
    """A token for each request whose tokens are all computed."""
    replica, requests, bins = tables.replicas[row], tables.requests, tables.bins[row]
    for place in range(replica.running):
        request = requests[tables.running[row, place]]
        reached = min(request.computed, request.prompt)
        if reached > request.most:
            replica.prompt_tokens += reached - request.most
            request.most = reached
        if request.computed == request.tokens:
            request.tokens += 1
            request.last = replica.clock
            replica.generated_tokens += 1
            if isnan(request.first):
                request.first = replica.clock
                replica.unfirst -= 1
                _count(bins[TTFT], request.first - request.sent)


@njit(cache=True)
def _retire(rules: Rules, tables: Tables, row: int) -> None:
    """Let go of the requests that have all their tokens."""
    replica, requests, bins = tables.replicas[row], tables.requests, tables.bins[row]
    running = tables.running[row]
    kept = 0
    for place in range(replica.running):
        index = running[place]
        request = requests[index]
        if request.tokens - request.prompt < request.output:
            running[kept] = index
            kept += 1
            continue
        request.finish = replica.clock
        replica.free += _blocks_for(request.computed, rules.block)
        replica.finished += 1
        _count(bins[E2E], request.finish - request.sent)
        if request.output > 1:
            _count(bins[TPOT], (request.finish - request.first) / (request.output - 1))
    replica.running = kept
