"""The server's view of the runtime: requests go in, one task reads what comes back and feeds each answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Protocol

from tidegate_engine.link.channel import ChannelClosed
from tidegate_engine.link.messages import Abort, Failed, Outputs, Quit, Ready, Submit, ToRuntime, ToServer, Vocabulary
from tidegate_engine.server.answers import Answer, Choice
from tidegate_engine.server.errors import ApiError, DeadlineExceeded, Overloaded, Unavailable
from tidegate_engine.server.telemetry import Telemetry
from tidegate_engine.server.timeline import Timelines

_LEAST_STALL = 60.0
_SLOWEST_STEPS = 10
"""Work that waited longer than 60 s, and longer than ten of the slowest steps, without a step, will not move again."""


class Channel(Protocol):
    """The link's end as this module uses it."""

    def send(self, message: ToRuntime) -> None:
        """Never waits."""

    async def receive(self) -> ToServer | None:
        """None once the runtime is gone."""


class RuntimeFailed(Exception):
    """The runtime said why it cannot go on."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class RuntimeGone(Exception):
    """The link closed without a word."""


class Engine:
    """Admits requests up to a bound, hands them to the runtime, and knows what is in flight."""

    def __init__(self, channel: Channel, telemetry: Telemetry, slots: int, queue: int) -> None:
        self._channel = channel
        self._telemetry = telemetry
        self._slots = slots
        self._queue = queue
        self._ids = itertools.count(1)
        self.timelines = Timelines()
        self._running: dict[int, tuple[Answer, Choice]] = {}
        self.answers: dict[Answer, None] = {}
        """In flight, oldest first."""
        self.ready: Ready | None = None
        self._is_ready = asyncio.Event()
        self._taught = False

    @property
    def places(self) -> int:
        """Choices that may run and wait at a time."""
        return self._slots + self._queue

    def submit(self, answer: Answer) -> None:
        """Start every choice; raises Overloaded where too many wait already, Unavailable where nothing answers."""
        now = time.monotonic()
        self._telemetry.received += 1
        if len(self._running) + len(answer.choices) > self.places:
            self._telemetry.rejected += 1
            waiting = max(1, len(self._running) - self._slots)
            oldest = now - next(iter(self.answers)).arrival if self.answers else 0.0
            raise Overloaded(
                f"{len(self._running)} answers run or wait, and at most {self.places} may; try again later",
                self._telemetry.retry_after(waiting, oldest, now),
            )
        self.answers[answer] = None
        self.timelines.begin(answer)
        if answer.deadline_s is not None:
            left = max(0.0, answer.arrival + answer.deadline_s - now)
            answer.timer = asyncio.get_running_loop().call_later(left, self._expire, answer)
        try:
            for choice in answer.choices:
                number = next(self._ids)
                self._running[number] = (answer, choice)
                answer.ids.append(number)
                self._channel.send(Submit(number, choice.prompt, choice.params, answer.arrival, answer.priority))
        except ChannelClosed as error:
            self._drop(answer)
            answer.failure = Unavailable("the engine is ending")
            self._over(answer, now)
            raise answer.failure from error

    def teach(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """Tell the runtime what tokens stand for, before the first request with a grammar; later calls do nothing."""
        if not self._taught:
            self._taught = True
            self._say(vocabulary())

    def abort(self, answer: Answer) -> None:
        """The client went away; does nothing for what is over."""
        if answer in self.answers:
            answer.aborted = True
            self._end_early(answer)

    def fail_all(self, failure: ApiError) -> None:
        """End everything in flight with an error that its clients are told."""
        for answer in list(self.answers):
            answer.failure = failure
            self._end_early(answer)

    def quit(self) -> None:
        """Ask the runtime to end."""
        self._say(Quit())

    async def wait_ready(self) -> Ready:
        """Wait for the runtime's first message."""
        await self._is_ready.wait()
        assert self.ready is not None  # set just before the event
        return self.ready

    async def run(self) -> None:
        """Read the link until it closes; raises RuntimeFailed or RuntimeGone, and never returns."""
        while True:
            message = await self._channel.receive()
            if isinstance(message, Outputs):
                self._dispatch(message)
            elif isinstance(message, Ready):
                self.ready = message
                self._is_ready.set()
            elif isinstance(message, Failed):
                raise RuntimeFailed(message.reason, message.exit_code)
            else:
                raise RuntimeGone

    def stalled(self, now: float) -> bool:
        """Whether work has waited so long without a finished step that only a restart helps."""
        if not self.answers:
            return False
        since = next(iter(self.answers)).arrival
        if self._telemetry.last_step_at is not None:
            since = max(since, self._telemetry.last_step_at)
        return now - since > max(_LEAST_STALL, _SLOWEST_STEPS * self._telemetry.stats.slowest_step_seconds)

    def _dispatch(self, message: Outputs) -> None:
        now = time.monotonic()
        self._telemetry.step(message.stats, now)
        for event in message.events:
            answer, choice = self._running.get(event.id, (None, None))
            if answer is not None and choice is not None:
                self.timelines.event(answer, choice, event)
        stopped: list[int] = []
        for output in message.outputs:
            answer, choice = self._running.get(output.id, (None, None))
            if answer is None or choice is None:
                continue
            before, tokens = choice.last_at, choice.tokens
            self.timelines.step(answer, choice, message.stats.steps)
            if choice.push(output, now):
                stopped.append(output.id)
            if choice.tokens > tokens:
                self._telemetry.tokens(answer, choice, choice.tokens - tokens, before, now)
            if choice.finish_reason is not None:
                del self._running[output.id]
                answer.ids.remove(output.id)
                if not answer.ids:
                    del self.answers[answer]
                    self._over(answer, now)
            answer.wake()
        if stopped:
            self._say(Abort(stopped))

    def _end_early(self, answer: Answer) -> None:
        self._say(Abort(list(answer.ids)))
        self._drop(answer)
        self._over(answer, time.monotonic())
        answer.wake()

    def _expire(self, answer: Answer) -> None:
        tokens, asked = answer.generated_tokens, sum(choice.params.max_tokens for choice in answer.choices)
        done = f"{tokens} of at most {asked} tokens were there" if tokens else "it had no token yet"
        answer.failure = DeadlineExceeded(
            f"deadline_s: {answer.deadline_s} s were over and {done}; give more time, ask for less, or give a lower "
            "priority number"
        )
        self._telemetry.expired += 1
        self._end_early(answer)

    def _over(self, answer: Answer, now: float) -> None:
        """Every request passes here exactly once."""
        if answer.timer is not None:
            answer.timer.cancel()
        self._telemetry.end(answer, now)
        self.timelines.end(answer, now)

    def _drop(self, answer: Answer) -> None:
        for number in answer.ids:
            del self._running[number]
        answer.ids.clear()
        del self.answers[answer]

    def _say(self, message: ToRuntime) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed:
            return  # a runtime that is gone has freed everything; `run` reports it
