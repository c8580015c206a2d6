"""Continuous batching over a batch interface, as llama-server does it: what a server around llama.cpp would do, free.

Every step holds the next token of all that generate, then as much of the waiting prompts as the batch has room for.
Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Batches(Protocol):
    """Where sequences are computed."""

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> list[int]:
        """Compute (token, position, sequence, whether its successor is wanted); the successors."""
        ...

    def remove(self, sequence: int) -> None:
        """Forget a sequence."""
        ...


@dataclass(slots=True)
class _Running:
    number: int
    tokens: list[int]
    """of the prompt, and the last that was generated"""
    wanted: int
    computed: int = 0
    generated: int = 0


@dataclass(slots=True)
class Course:
    """By request, seconds from its arrival to its first token and to its last; `wall` until all had ended."""

    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    wall: float = 0.0


def serve_all(
    batches: Batches,
    requests: Sequence[tuple[list[int], int]],
    arrivals: Sequence[float],
    slots: int,
    room: int,
    now: Callable[[], float],
    wait: Callable[[float], None],
) -> Course:
    """Serve (prompt, tokens wanted) that arrive at these ascending times; `room` is the tokens of a step."""
    began = now()
    course = Course([0.0] * len(requests), [0.0] * len(requests))
    ahead = deque(range(len(requests)))
    running: dict[int, _Running] = {}
    free = list(range(slots - 1, -1, -1))
    while ahead or running:
        while ahead and free and arrivals[ahead[0]] <= now() - began:
            number = ahead.popleft()
            prompt, wanted = requests[number]
            running[free.pop()] = _Running(number, list(prompt), wanted)
        if not running:
            wait(arrivals[ahead[0]] - (now() - began))
            continue
        rows, sampling = _rows(running, room)
        found = batches.decode(rows)
        at = now() - began
        for slot, token in zip(sampling, found, strict=True):
            request = running[slot]
            request.tokens.append(token)
            request.generated += 1
            if request.generated == 1:
                course.first[request.number] = at - arrivals[request.number]
            if request.generated == request.wanted:
                course.last[request.number] = at - arrivals[request.number]
                batches.remove(slot)
                del running[slot]
                free.append(slot)
    course.wall = now() - began
    return course


def _rows(running: dict[int, _Running], room: int) -> tuple[list[tuple[int, int, int, bool]], list[int]]:
    """A step's tokens, those that generate first, and the slots whose successors are wanted."""
    rows: list[tuple[int, int, int, bool]] = []
    sampling: list[int] = []
    for slot, request in sorted(running.items(), key=lambda item: (item[1].generated == 0, item[1].number)):
        end = min(len(request.tokens), request.computed + room - len(rows))
        whole = end == len(request.tokens)
        rows += [(request.tokens[at], at, slot, whole and at == end - 1) for at in range(request.computed, end)]
        request.computed = end
        if whole:
            sampling.append(slot)
        if len(rows) == room:
            break
    return rows, sampling
