"""What the yardstick asks of a worker and hears from it: JSON, a line each. Standard library only: peers have no more.

A generation is opened (its prompts are computed), advanced some steps at a time, and closed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """Compute a prompt that nobody has seen before, up to its first token."""

    ids: list[int]


@dataclass(frozen=True, slots=True)
class Open:
    """Compute these prompts of equal length, and be ready for at least `new_tokens` more of each."""

    prompts: list[list[int]]
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Generate `steps` tokens for every open prompt."""

    steps: int


@dataclass(frozen=True, slots=True)
class Close:
    """Forget the open prompts."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Said once, by a worker that is ready."""

    name: str
    vocab_size: int
    kernels: str
    """what computes, in the engine's own words"""
    weight_bytes: int
    """of weights read in a decode step; 0 where the worker cannot tell"""
    kv_bytes: int
    """of keys and values for one token; 0 where the worker cannot tell"""


@dataclass(frozen=True, slots=True)
class Timing:
    """What a task took: tokens computed, seconds on the wall, seconds on processors."""

    tokens: int
    wall: float
    cpu: float
    """of this process's threads"""
    others: float
    """of everybody else on this machine"""


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot go on."""

    reason: str


Task = Prompt | Open | Advance | Close
Reply = Hello | Timing | Failed
_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in (Prompt, Open, Advance, Close, Hello, Timing, Failed)}


def encode(message: Task | Reply) -> str:
    """One line."""
    return json.dumps({"type": type(message).__name__, **asdict(message)})


def decode(line: str) -> Any:
    """The message of a line written by `encode`."""
    fields = json.loads(line)
    return _TYPES[fields.pop("type")](**fields)
