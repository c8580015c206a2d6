"""Replicas that make every step: the engine's own scheduler behind the seam that the cluster uses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from tidegate_operator.observed_sketch import Sketch

from tidegate_lab.simulate.exact import ExactReplica
from tidegate_lab.simulate.leap_steps import mixed
from tidegate_lab.simulate.scenario import Routing, Scenario
from tidegate_lab.simulate.servers import Counts, Gauges, Three, Times


@dataclass(slots=True)
class _Server:
    number: int
    engine: ExactReplica
    turn: int
    ready: bool = True
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)

    @property
    def inside(self) -> int:
        return len(self.engine.unfinished)


class StepwiseServers:
    """See `servers.Servers`."""

    def __init__(self, scenario: Scenario) -> None:
        self._trace, self._engine = scenario.trace, scenario.engine
        self._routing, self._seed = scenario.routing, scenario.seed
        self._servers: dict[int, _Server] = {}
        self._now, self._next, self._turn = 0.0, 0, 0
        self._held: deque[int] = deque()
        self._gone = Counts()
        self._sent = np.full(len(self._trace), np.nan)
        self._first = np.full(len(self._trace), np.nan)
        self._finish = np.full(len(self._trace), np.nan)

    def serve(self, until: float) -> None:
        """Take the arrivals before `until` and run every step that begins before it."""
        at = self._trace.at
        while self._next < len(at) and at[self._next] < until:
            self._advance(float(at[self._next]))
            self._route(self._next)
            self._next += 1
        self._advance(until)

    def open(self, number: int) -> None:
        """A replica is ready: it gets what is held, and its share of what comes."""
        engine = ExactReplica(self._engine, began=self._now)
        self._servers[number] = _Server(number, engine, turn=number - (1 << 40))
        held, self._held = self._held, deque()
        for index in held:
            self._route(index)

    def drain(self, number: int) -> None:
        """It gets nothing more, and goes on."""
        self._servers[number].ready = False

    def close(self, number: int) -> int:
        """It is gone; how many requests are lost with it."""
        self._gone = self._gone.plus(self.counts(number))
        return self._servers.pop(number).inside

    def inside(self, number: int) -> int:
        """Requests in it that have not finished."""
        return self._servers[number].inside

    def idle_since(self, number: int) -> float:
        """When its last step ended."""
        return self._servers[number].engine.gauges.last_step_at or 0.0

    @property
    def held(self) -> int:
        """Requests that wait for any replica to be ready."""
        return len(self._held)

    @property
    def oldest_held_s(self) -> float:
        """How long the first of them has waited; 0: there is none."""
        return self._now - float(self._trace.at[self._held[0]]) if self._held else 0.0

    @property
    def arrived(self) -> int:
        """Requests of the trace that have come."""
        return self._next

    def totals(self) -> tuple[int, int]:
        """Requests inside all replicas: with a first token, and without."""
        gauges = [server.engine.gauges for server in self._servers.values()]
        return sum(g.running for g in gauges), sum(g.waiting for g in gauges)

    def counts(self, number: int) -> Counts:
        """Since it was opened."""
        return self._servers[number].engine.counts

    def grand_total(self) -> Counts:
        """Of all replicas there are and were."""
        return reduce(Counts.plus, (self.counts(number) for number in self._servers), self._gone)

    def gauges(self, number: int) -> Gauges:
        """As it is now."""
        gauges, now = self._servers[number].engine.gauges, self._now
        return Gauges(
            running=gauges.running,
            waiting=gauges.waiting,
            oldest_waiting_s=0.0 if gauges.oldest_waiting_at is None else now - gauges.oldest_waiting_at,
            oldest_unfinished_s=0.0 if gauges.oldest_unfinished_at is None else now - gauges.oldest_unfinished_at,
            blocks_used=gauges.blocks_used,
            last_step_age_s=None if gauges.last_step_at is None else now - gauges.last_step_at,
        )

    def sketches(self, number: int) -> Three:
        """Of requests that got their first token, and of those that finished, since it was opened."""
        server = self._servers[number]
        return Sketch.of(server.ttft), Sketch.of(server.tpot), Sketch.of(server.e2e)

    def sketched_now(self, number: int) -> tuple[Sketch, Sketch]:
        """Ages of requests without a first token, and pace so far of the others."""
        engine = self._servers[number].engine
        ages = [self._now - self._sent[index] for index in engine.unfinished if np.isnan(self._first[index])]
        paces = [(pace.at - self._first[pace.index]) / (pace.tokens - 1) for pace in engine.paces if pace.tokens > 1]
        return Sketch.of(ages), Sketch.of(paces)

    def times(self) -> tuple[Times, Times]:
        """By request: first token and finish; NaN: never."""
        return self._first.copy(), self._finish.copy()

    def _advance(self, until: float) -> None:
        self._now = until
        for server in self._servers.values():
            server.engine.advance(until)
            for index, at in server.engine.take_first_tokens():
                self._first[index] = at
                server.ttft.append(at - self._sent[index])
            for index, at in server.engine.take_finished():
                self._finish[index] = at
                server.e2e.append(at - self._sent[index])
                tokens = int(self._trace.output[index])
                if tokens > 1:
                    server.tpot.append((at - self._first[index]) / (tokens - 1))

    def _route(self, index: int) -> None:
        ready = sorted((s for s in self._servers.values() if s.ready), key=lambda s: s.number)
        if not ready:
            self._held.append(index)
            return
        if self._routing is Routing.RANDOM:
            chosen = ready[int(mixed(self._seed % 2**64, index)) % len(ready)]
        elif self._routing is Routing.ROUND_ROBIN:
            chosen = min(ready, key=lambda s: s.turn)
        else:
            chosen = min(ready, key=lambda s: (s.inside, s.turn))
        self._turn += 1
        chosen.turn = self._turn
        self._sent[index] = self._now
        prompt, output = int(self._trace.prompt[index]), int(self._trace.output[index])
        chosen.engine.submit(index, self._now, prompt, output)
