"""How many tokens to guess: as many as raise the number of tokens a second, by what steps and guesses have cost.

A guess at depth j of a request whose guesses come true with probability p adds p ** j tokens to the step, and its
share of the step's time. So guesses are taken from the likeliest down, while the next one gives more tokens for its
time than the step so far; with a draft model, whose passes are made one after the other, once for each number of
passes. Where nothing pays nothing is guessed, and a few guesses are made now and then to see whether that has changed.
Pure: costs and times are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate_engine.link.messages import StepCost

_FIRST_PROBE, _RAREST_PROBE = 16, 64
"""Steps without a guess after which a request gets one to see; the wait doubles with each that does not come true."""
_SHARE_TO_SEE = 0.02
"""Of the time, for a drafter's passes that guess only to see; who waits for one shares it with the others."""
_FULL_PROBE = 256
"""Steps at a batch size without a guess after which one is made as if guesses cost nothing, to measure what they do."""
_PLAIN_PROBE = 64
"""Steps with guesses after which one is made without, to measure what it takes."""
_KEPT_OF_REQUEST, _KEPT_OF_ALL = 0.95, 0.98
"""Of what is known of guesses, at each that is checked."""
_WEIGHT_OF_ALL = 2.0
"""Guesses that what is known of all requests counts for, where one's own are few."""
_CLEAR, _CERTAIN = 0.9, 0.98
_LEAST_SECONDS = 1e-9


@dataclass(slots=True)
class _Rate:
    """How often guesses come true. A guess after a wrong one was never checked."""

    accepted: float
    checked: float

    def take(self, guessed: int, accepted: int, kept: float) -> None:
        tried = min(guessed, accepted + 1)
        share = kept**tried
        self.accepted = share * self.accepted + accepted
        self.checked = share * self.checked + tried


@dataclass(slots=True)
class _Request:
    rate: _Rate = field(default_factory=lambda: _Rate(0.0, 0.0))
    idle: int = 0
    """Steps since a guess was checked."""
    patience: int = _FIRST_PROBE
    """Idle steps before one is made to see."""
    eager: bool = False
    """The last one made to see came true: so another at once, until it is clear that they do."""


@dataclass(slots=True)
class _Costs:
    """At one size of batch: what a step takes beside what is expected of it, and what guesses add."""

    plain: float = 1.0
    excess: float = 0.0
    guesses: float = 0.0
    passes: float = 0.0
    measured: bool = False
    idle: int = 0
    busy: int = 0
    credit: float = 0.0
    """Seconds that may be spent on a pass of the drafter for guesses that are only made to see."""

    def per_guess(self, expected: float) -> float:
        """Seconds that each guess adds to a step; `expected` until some were measured."""
        return max(_LEAST_SECONDS, self.excess / self.guesses) if self.measured else max(_LEAST_SECONDS, expected)


class SpeculationControl:
    """Knows how often guesses come true and what they cost. `most` is the deepest that may be guessed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: dict[int, _Request] = {}
        self._rate = _Rate(2.1, 3.0)
        self._costs: dict[int, _Costs] = {}

    def plan(self, ids: Sequence[int], kv_tokens: int, cost: StepCost | None) -> dict[int, int]:
        """How deep to guess for each of the requests that decode; those that are left out get no guess."""
        if not ids:
            return {}
        costs = self._costs.setdefault(len(ids).bit_length(), _Costs())
        if cost is None:
            return dict.fromkeys(ids, self._most)
        if costs.busy >= _PLAIN_PROBE:
            costs.busy = 0
            return {}
        if costs.idle >= _FULL_PROBE:
            costs.idle = 0
            return dict.fromkeys(ids, self._most)
        requests = [self._requests.setdefault(id, _Request()) for id in ids]
        chances = [self._chance(request) for request in requests]
        plain = costs.plain * cost.seconds(len(ids), kv_tokens)
        depths = _best(Counter(chances), self._most, len(ids), plain, costs.per_guess(cost.b), costs.passes)
        costs.credit = min(costs.passes, costs.credit + _SHARE_TO_SEE * plain)
        may_see = bool(depths) or costs.credit >= costs.passes
        found: dict[int, int] = {}
        for id, request, chance in zip(ids, requests, chances, strict=True):
            depth = depths.get(chance, 0)
            if depth:
                request.patience = _FIRST_PROBE
                # What the others have shown may not hold for this one: deep only once its own have come true.
                depth = min(depth, 1 + round(request.rate.checked))
            elif may_see and (request.eager or request.idle >= request.patience):
                depth = 1
                costs.credit = 0.0
            else:
                request.idle += 1
            if depth:
                found[id] = depth
        return found

    def proposed(self, requests: int, deepest: int, seconds: float) -> None:
        """Guessing for a batch of so many requests took so long."""
        if deepest:
            costs = self._costs.setdefault(requests.bit_length(), _Costs())
            # Reading a new request's prompt is done once, and is no reason to stop guessing for it.
            usual = min(seconds / deepest, 2 * costs.passes) if costs.passes else seconds / deepest
            costs.passes += 0.2 * (usual - costs.passes)

    def checked(self, id: int, guessed: int, accepted: int) -> None:
        """So many of a request's guesses came true."""
        self._rate.take(guessed, accepted, _KEPT_OF_ALL)
        request = self._requests.setdefault(id, _Request())
        request.rate.take(guessed, accepted, _KEPT_OF_REQUEST)
        request.idle = 0
        request.eager = accepted == guessed and self._chance(request) < _CLEAR
        if not request.eager:
            request.patience = min(_RAREST_PROBE, 2 * request.patience)

    def stepped(self, requests: int, guesses: int, kv_tokens: int, seconds: float, cost: StepCost | None) -> None:
        """A step of so many requests that decode, and nothing else, took so long with so many guesses."""
        costs = self._costs.setdefault(requests.bit_length(), _Costs())
        costs.idle = 0 if guesses >= requests else costs.idle + 1
        costs.busy = costs.busy + 1 if guesses else 0
        if cost is None:
            return
        expected = max(_LEAST_SECONDS, cost.seconds(requests, kv_tokens))
        # A step that was interrupted says little.
        seconds = min(seconds, 3 * costs.plain * expected + 3 * guesses * costs.per_guess(cost.b))
        if not guesses:
            costs.plain += 0.1 * (seconds / expected - costs.plain)
            return
        costs.excess = 0.95 * costs.excess + guesses * (seconds - costs.plain * expected)
        costs.guesses = 0.95 * costs.guesses + guesses * guesses
        costs.measured = True

    def forget(self, id: int) -> None:
        """A request is over; one that is not known is no news."""
        self._requests.pop(id, None)

    def _chance(self, request: _Request) -> float:
        """That the next guess comes true, rounded, so that requests fall into few groups."""
        usual = self._rate.accepted / self._rate.checked
        own = request.rate
        chance = (own.accepted + _WEIGHT_OF_ALL * usual) / (own.checked + _WEIGHT_OF_ALL)
        return min(_CERTAIN, round(chance * 32) / 32)


def _best(
    chances: Counter[float], most: int, tokens: int, seconds: float, per_guess: float, per_pass: float
) -> dict[float, int]:
    """By chance, the depth at which a step of `tokens` in `seconds` without guesses gives most tokens a second."""
    best: dict[float, int] = {}
    rate = tokens / max(seconds, _LEAST_SECONDS)
    for deepest in range(1, most + 1):
        gains = sorted(
            ((chance**depth, depth, chance) for chance in chances for depth in range(1, deepest + 1)),
            key=lambda gain: (-gain[0], gain[1]),
        )
        said, took = float(tokens), seconds + per_pass * deepest
        depths: dict[float, int] = {}
        for gain, depth, chance in gains:
            if gain * took <= per_guess * said:
                break
            said += gain * chances[chance]
            took += per_guess * chances[chance]
            depths[chance] = depth
        if said / took > rate:
            best, rate = depths, said / took
    return best
