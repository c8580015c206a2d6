"""`GET /debug/requests/{id}`: where a request's time went. The last requests are kept, and never any text."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from tidegate_engine.core.request import FinishReason
from tidegate_engine.link.messages import Event
from tidegate_engine.server.answers import Answer, Choice

KEPT = 256
"""Requests that are over."""
_EVENTS_KEPT = 64
"""Of a choice, the first chunks and the first preemptions; the rest is only counted."""


class Chunk(msgspec.Struct, frozen=True):
    """A share of the prompt in one step: `tokens` from position `start`. Times are seconds after arrival."""

    at_s: float
    step: int
    start: int
    tokens: int


class Preemption(msgspec.Struct, frozen=True):
    """The step that took the choice's cache away; it waits again, and what it lost is computed again."""

    at_s: float
    step: int


class ChoiceTimeline(msgspec.Struct, frozen=True):
    """One answer of a request. None: has not happened."""

    index: int
    prompt_tokens: int
    queued_s: float | None
    """Until its first share of a step."""
    cached_tokens: int
    num_chunks: int
    chunks: list[Chunk]
    num_preemptions: int
    preemptions: list[Preemption]
    steps: int
    """Steps in which something was computed for it."""
    tokens: int
    first_token_s: float | None
    last_token_s: float | None
    finish_reason: FinishReason | None


class RequestTimeline(msgspec.Struct, frozen=True):
    """A request by the id that its response carries."""

    id: str
    state: str
    """waiting (no step has had a share of it yet), running or ended"""
    created: int
    """Unix time of its arrival, seconds"""
    age_s: float
    """Since arrival, or until its end"""
    ended: str | None
    """finished, client_left, or the code of the error it ended with"""
    priority: int
    deadline_s: float | None
    choices: list[ChoiceTimeline]


class Known(msgspec.Struct, frozen=True):
    """An entry of `GET /debug/requests`."""

    id: str
    state: str
    age_s: float


class KnownRequests(msgspec.Struct, frozen=True):
    """Those in flight, then those that are over, the latest first."""

    requests: list[Known]


@dataclass(slots=True)
class _Course:
    chunks: list[Chunk] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    num_chunks: int = 0
    num_preemptions: int = 0
    steps: int = 0
    last_step: int = 0


class Timelines:
    """Follows requests while they run, and keeps the last `kept` that are over."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._live: dict[str, tuple[Answer, dict[Choice, _Course]]] = {}
        self._ended: OrderedDict[str, RequestTimeline] = OrderedDict()

    def begin(self, answer: Answer) -> None:
        """A request is handed to the runtime."""
        self._live[answer.id] = (answer, {choice: _Course() for choice in answer.choices})

    def event(self, answer: Answer, choice: Choice, event: Event) -> None:
        """The runtime tells of a share of the prompt, or of lost blocks."""
        course = self._live[answer.id][1][choice]
        at = round(event.at - answer.arrival, 6)
        if event.tokens:
            course.num_chunks += 1
            if len(course.chunks) < _EVENTS_KEPT:
                course.chunks.append(Chunk(at, event.step, event.start, event.tokens))
            self._count_step(course, event.step)
        else:
            course.num_preemptions += 1
            if len(course.preemptions) < _EVENTS_KEPT:
                course.preemptions.append(Preemption(at, event.step))

    def step(self, answer: Answer, choice: Choice, number: int) -> None:
        """A step had an output for the choice."""
        self._count_step(self._live[answer.id][1][choice], number)

    def _count_step(self, course: _Course, number: int) -> None:
        if course.last_step != number:
            course.last_step = number
            course.steps += 1

    def end(self, answer: Answer, now: float) -> None:
        """A request is over; one that never began is no news."""
        if answer.id not in self._live:
            return
        how = "client_left" if answer.aborted else "finished"
        if answer.failure is not None:
            how = answer.failure.code or answer.failure.type
        timeline = self._seen(answer.id, now, how)
        del self._live[answer.id]
        self._ended[answer.id] = timeline
        while len(self._ended) > self._kept:
            self._ended.popitem(last=False)

    def find(self, id: str, now: float) -> RequestTimeline | None:
        """A request in flight, or one of the last that are over."""
        return self._seen(id, now, None) if id in self._live else self._ended.get(id)

    def known(self, now: float) -> KnownRequests:
        """All that `find` finds."""
        live = [
            Known(id, _state(courses), round(now - answer.arrival, 6)) for id, (answer, courses) in self._live.items()
        ]
        ended = [Known(line.id, line.state, line.age_s) for line in self._ended.values()]
        return KnownRequests([*reversed(live), *reversed(ended)])

    def _seen(self, id: str, now: float, ended: str | None) -> RequestTimeline:
        answer, courses = self._live[id]
        return RequestTimeline(
            id,
            "ended" if ended is not None else _state(courses),
            answer.created,
            round(now - answer.arrival, 6),
            ended,
            answer.priority,
            answer.deadline_s,
            [_choice(answer, choice, course) for choice, course in courses.items()],
        )


def _state(courses: dict[Choice, _Course]) -> str:
    return "running" if any(course.num_chunks for course in courses.values()) else "waiting"


def _choice(answer: Answer, choice: Choice, course: _Course) -> ChoiceTimeline:
    def after(moment: float | None) -> float | None:
        return None if moment is None else round(moment - answer.arrival, 6)

    # Until the first output says how much was cached, the place where the first chunk begins does.
    first = course.chunks[0] if course.chunks else None
    return ChoiceTimeline(
        choice.index,
        len(choice.prompt),
        None if first is None else first.at_s,
        0 if first is None else first.start,
        course.num_chunks,
        list(course.chunks),
        course.num_preemptions,
        list(course.preemptions),
        course.steps,
        choice.tokens,
        after(choice.first_at),
        after(choice.last_at),
        choice.finish_reason,
    )
