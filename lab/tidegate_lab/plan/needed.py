"""The least number of replicas with which enough requests are within their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.fixed import Served, serve_with
from tidegate_lab.simulate.scenario import Targets
from tidegate_lab.traffic.shape import cut
from tidegate_lab.traffic.trace import Trace

MOST = 4096
"""Replicas that are tried at most."""
ALONE = 2000
"""Requests that are tried alone, evenly taken of the trace."""
WARM_UP_S = 120.0
"""What is simulated before a part of a trace, so that it does not begin with empty replicas."""


class NeverEnough(ValueError):
    """No number of replicas that was tried is enough; the message is one line."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Targets, and the share of requests that must be within all of them."""

    targets: Targets
    share: float = 0.99


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of replicas, and what it attains."""

    replicas: int
    attainment: float
    served: Served


@dataclass(frozen=True, slots=True)
class Floor:
    """One latency of requests that have a replica each for themselves, against its target; seconds."""

    target: str
    limit_s: float
    at_share_s: float
    """What the wanted share of the requests does not exceed."""
    attained: float
    """Share of the requests within the target."""


def attaining(served: Served, targets: Targets) -> NDArray[np.bool_]:
    """By request: answered, and within every target."""
    good = ~np.isnan(served.finished_at)
    for _, times, limit in _by_target(served, targets):
        good &= times <= limit
    return np.asarray(good)


def floors(trace: Trace, engine: EngineModel, wanted: Wanted) -> list[Floor]:
    """What each targeted latency is at best: every request alone on a replica. No number of replicas does better.

    Raises NeverEnough where too many requests can never fit the cache, or miss one target or another.
    """
    picked = np.unique(np.linspace(0, len(trace) - 1, min(len(trace), ALONE)).astype(int))
    at = np.array([1e5 * place for place in range(len(picked))])
    apart = Trace(trace.name, at, trace.prompt[picked], trace.output[picked], float(at[-1]))
    served = serve_with(1, apart, engine)
    refused = np.isnan(served.finished_at)
    if refused.mean() > 1 - wanted.share:
        longest = int((apart.prompt + apart.output)[refused].min())
        raise NeverEnough(
            f"{refused.mean():.1%} of the requests, from {longest} tokens on, never fit the {engine.kv_tokens} tokens "
            f"of {engine.name}'s cache; give it a larger one, or bound the requests' length"
        )
    best = [
        Floor(
            target=name,
            limit_s=limit,
            at_share_s=float(np.percentile(times, wanted.share * 100, method="inverted_cdf")),
            attained=float((times <= limit).mean()),
        )
        for name, times, limit in _by_target(served, wanted.targets)
    ]
    together = float(attaining(served, wanted.targets).mean())
    if together < wanted.share and all(floor.attained >= wanted.share for floor in best):
        raise NeverEnough(
            f"each target by itself is within reach, but even alone on a replica only {together:.1%} of the requests "
            "are within all of them; lower --share, or one of the targets"
        )
    return best


def fixed(trace: Trace, engine: EngineModel, wanted: Wanted, *, after_s: float = 0.0, start: int = 1) -> Fixed:
    """The least number that serves the whole trace; of requests before `after_s` nothing is asked.

    `start` is tried first: a good guess saves days served by far too few, whose queues take long to simulate.

    Raises NeverEnough where MOST replicas are too few.
    """
    counted = trace.at >= after_s

    def tried(replicas: int) -> Fixed:
        served = serve_with(replicas, trace, engine)
        good = attaining(served, wanted.targets)[counted]
        return Fixed(replicas, float(good.mean()) if len(good) else 1.0, served)

    return _least(tried, wanted.share, start)


def busiest(trace: Trace, window_s: float) -> Trace:
    """The window with the most tokens; all of a trace that is no longer."""
    if trace.seconds <= window_s:
        return trace
    edges = np.arange(0.0, trace.seconds + window_s, window_s)
    tokens = np.histogram(trace.at, bins=edges, weights=(trace.prompt + trace.output).astype(np.float64))[0]
    return cut(trace, float(edges[int(tokens.argmax())]), window_s)


def following(trace: Trace, engine: EngineModel, wanted: Wanted, window_s: float) -> list[Fixed]:
    """Window by window the least number that serves it, as if it could be changed at no delay and known ahead.

    Windows without a request need none: `replicas` is 1, as low as a service that answers at once can go.
    """
    found: list[Fixed] = []
    for start in np.arange(0.0, max(trace.seconds, 1e-9), window_s).tolist():
        begin = max(0.0, start - WARM_UP_S)
        part = cut(trace, begin, start + window_s - begin)
        guess = found[-1].replicas if found else 1
        found.append(fixed(part, engine, wanted, after_s=start - begin, start=guess))
    return found


def _least(tried: Callable[[int], Fixed], share: float, start: int) -> Fixed:
    """Doubling from `start` until it is enough, halving while it is more than enough, then bisection."""
    low, best = 0, tried(start)
    while best.attainment < share:
        low = best.replicas
        if low * 2 > MOST:
            raise NeverEnough(
                f"{low} replicas bring {best.attainment:.1%} of the requests within the targets, not {share:.1%}"
            )
        best = tried(low * 2)
    while best.replicas - low > 1:
        middle = (low + best.replicas) // 2 if low else max(1, best.replicas * 3 // 4)
        attempt = tried(middle)
        if attempt.attainment >= share:
            best = attempt
        else:
            low = middle
    return best


def _by_target(served: Served, targets: Targets) -> list[tuple[str, NDArray[np.float64], float]]:
    limits = (
        ("ttft", served.ttft, targets.ttft_s),
        ("tpot", served.tpot, targets.tpot_s),
        ("e2e", served.e2e, targets.e2e_s),
    )
    return [(name, np.nan_to_num(times, nan=np.inf), limit) for name, times, limit in limits if limit is not None]
