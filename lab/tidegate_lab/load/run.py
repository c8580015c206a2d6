"""Running a load: when to send, how much at once, when to stop. Bounded in number and in time, always."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from tidegate_lab.load.arrivals import Arrival, poisson
from tidegate_lab.load.prompts import lengths, prompt
from tidegate_lab.load.stream import Ask, Outcome, client, send


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A load. Exactly one of `rate` (open loop, requests a second) and `concurrency` (closed loop) is set."""

    url: str
    model: str
    rate: float | None = None
    concurrency: int | None = None
    requests: int = 100
    duration_s: float = 60.0
    timeout_s: float = 120.0
    prompt_tokens: int = 100
    max_tokens: int = 32
    spread: float = 0.0
    """Lengths are drawn evenly from so much less to so much more than these two."""
    seed: int = 0
    trace: tuple[Arrival, ...] = ()
    """Where there are any: these, with answers of just that length, instead of a rate or a concurrency."""

    @property
    def shape(self) -> str:
        """In words, for the report."""
        if self.trace:
            return f"open loop, a trace of {len(self.trace)} requests"
        if self.rate is not None:
            return f"open loop, {self.rate:g} requests/s (Poisson, seed {self.seed})"
        return f"closed loop, {self.concurrency} at a time (seed {self.seed})"

    def times(self) -> Iterator[float]:
        """Seconds from the start at which requests are due, in an open loop."""
        if self.trace:
            return (arrival.at_s for arrival in self.trace[: self.requests] if arrival.at_s <= self.duration_s)
        return poisson(self.rate or 0.0, self.seed, self.requests, self.duration_s)

    def ask(self, number: int, due: float) -> Ask:
        """The request of this number."""
        if self.trace:
            arrival = self.trace[number]
            wanted = (arrival.prompt_tokens, arrival.output_tokens)
        else:
            wanted = lengths(self.seed, number, self.prompt_tokens, self.max_tokens, self.spread)
        text = prompt(self.seed, number, wanted[0])
        return Ask(number, due, self.model, text, wanted[1], self.timeout_s, exact=bool(self.trace))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is, told about once a second."""

    at_s: float
    sent: int
    running: int
    completed: int
    failed: int


@dataclass(slots=True)
class Load:
    """One run of a plan. `stop` ends the sending; what is in flight is still waited for."""

    plan: Plan
    outcomes: list[Outcome] = field(default_factory=list)
    sent: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Send nothing more."""
        self.stopping.set()

    async def run(self, tell: Callable[[Progress], None] | None = None) -> float:
        """Send all of it and wait for every answer; returns the seconds it took."""
        began = time.perf_counter()
        async with client() as http, asyncio.TaskGroup() as group:
            teller = group.create_task(self._tell(began, tell)) if tell else None
            async with asyncio.TaskGroup() as requests:
                if self.plan.trace or self.plan.rate is not None:
                    await self._open(http, requests, began)
                else:
                    for _ in range(self.plan.concurrency or 1):
                        requests.create_task(self._worker(http, began))
            if teller:
                teller.cancel()
        took = time.perf_counter() - began
        if tell:
            tell(self.progress(took))
        return took

    def progress(self, at_s: float) -> Progress:
        """Counts so far."""
        failed = sum(1 for o in self.outcomes if o.failure)
        return Progress(at_s, self.sent, self.sent - len(self.outcomes), len(self.outcomes) - failed, failed)

    async def _open(self, http: httpx.AsyncClient, group: asyncio.TaskGroup, began: float) -> None:
        for at in self.plan.times():
            await self._pause(began + at - time.perf_counter())
            if self.stopping.is_set():
                return
            group.create_task(self._one(http, began, began + at))

    async def _worker(self, http: httpx.AsyncClient, began: float) -> None:
        while self._more(began):
            outcome = await self._one(http, began, time.perf_counter())
            if outcome.failure and self._more(began):  # a server that refuses at once is not to be hammered
                await self._pause(1.0)

    def _more(self, began: float) -> bool:
        in_time = time.perf_counter() - began < self.plan.duration_s
        return in_time and self.sent < self.plan.requests and not self.stopping.is_set()

    async def _one(self, http: httpx.AsyncClient, began: float, due: float) -> Outcome:
        number, plan = self.sent, self.plan
        self.sent += 1
        outcome = await send(http, plan.url, plan.ask(number, due))
        outcome.due_s = due - began
        self.outcomes.append(outcome)
        return outcome

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self.stopping.wait()
            except TimeoutError:
                return

    async def _tell(self, began: float, tell: Callable[[Progress], None]) -> None:
        while True:
            await asyncio.sleep(1.0)
            tell(self.progress(time.perf_counter() - began))
