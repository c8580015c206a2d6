"""What the two processes say to each other; one msgpack frame a message.

Submit, Abort, Vocabulary and Quit go from the server to the runtime; Ready, Outputs and Failed come back. Times are
seconds of CLOCK_MONOTONIC, which both processes of a pod share.
"""

from __future__ import annotations

import msgspec

from tidegate_engine.core.request import FinishReason, SamplingParams


class Submit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One choice of one request. The server expands n > 1 into several; `id` is its own, ascending, never reused."""

    id: int
    prompt: list[int]
    params: SamplingParams
    arrival: float
    priority: int = 0
    """The lower, the sooner; see core.scheduler."""


class Abort(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The client went away, or the server found a stop string: free the blocks, send nothing more for these."""

    ids: list[int]


class Vocabulary(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The bytes of every token, for grammars; sent once, before the first request with one."""

    tokens: list[bytes]
    """By id; of special tokens the name."""
    special: list[int]
    """Ids that no text stands for."""
    ends: list[int]
    """Ids that end an answer: allowed where the grammar may end."""


class Quit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End now, exit code 0. The server has already waited for running requests. A closed channel means the same."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log probabilities at one position, after penalties and bias, before temperature and truncation."""

    chosen: float
    top_ids: list[int]
    top: list[float]


class Event(msgspec.Struct, frozen=True, array_like=True):
    """A share of a request's prompt in a step, or, where `tokens` is 0, that the step took its blocks away."""

    id: int
    step: int
    """Steps since start, this one included."""
    at: float
    start: int
    tokens: int


class Output(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of one request; `finish_reason` is set exactly once, in its last message."""

    id: int
    tokens: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache; filled in the first message of a request."""
    prompt_logprobs: list[TokenLogprobs] | None = None
    """Of the prompt's second token and on, in the first message of a request that wants them."""
    embedding: bytes | None = None
    """Little-endian float32 of length 1, in the only message of a request that wants it."""


class StepCost(msgspec.Struct, frozen=True, array_like=True):
    """What a step takes, as far as it was measured: seconds = a + b * new tokens + c * tokens held in the cache."""

    a: float
    b: float
    c: float
    error: float
    """Mean of what steps were off by, as a share of their duration."""

    def seconds(self, new_tokens: int, kv_tokens: int) -> float:
        """Of a step that computes so many tokens, for requests that hold so many after it."""
        return self.a + self.b * new_tokens + self.c * kv_tokens


class Drafts(msgspec.Struct, frozen=True, array_like=True):
    """Speculation since start: guesses made, and those that came true."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: list[int] = []
    """How often the first, second, ... guess in a row came true."""


class Stats(msgspec.Struct, frozen=True, array_like=True):
    """The runtime's gauges and totals after a step; totals count since start."""

    running: int
    waiting: int
    kv_blocks_used: int
    steps: int
    preemptions: int
    prompt_tokens: int
    """Prompt tokens computed, prefix hits left out."""
    cached_tokens: int
    generated_tokens: int
    last_step_seconds: float
    slowest_step_seconds: float
    step_cost: StepCost | None = None
    drafts: Drafts = Drafts()


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The model is loaded and warm; sent once, before any Outputs."""

    kv_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int
    slots: int
    kernels: str
    """For the log: the kernels chosen and what was measured to choose them."""
    seconds: dict[str, float]
    """Parts of the start: import, weights, kv, warmup."""


class Outputs(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Sent after each step that had work, and once more (empty) when the last work is gone."""

    outputs: list[Output]
    stats: Stats
    events: list[Event] = []


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The runtime cannot go on: one line for the user, and the exit code the pod should end with."""

    reason: str
    exit_code: int


ToRuntime = Submit | Abort | Vocabulary | Quit
ToServer = Ready | Outputs | Failed
