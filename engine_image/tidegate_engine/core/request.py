"""A request as the scheduler sees it, and what its tokens are sampled with."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a request ended; the names are OpenAI's where it has one."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request's tokens are chosen. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 mean off.

    Random numbers come from (seed, choice, position) alone, so batching and preemption change nothing; the server
    draws a seed where the user gave none.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    choice: int = 0
    logprobs: int | None = None
    """None: none wanted. k: the chosen token's log probability and the k most likely beside it."""
    logit_bias: dict[int, float] = field(default_factory=dict)
    stop_token_ids: tuple[int, ...] = ()
    """Ends the request with STOP; the token itself is part of the output ids, the server hides its text."""
    ignore_eos: bool = False
    """Where true, `stop_token_ids` do not end the request."""
    adapter: int = 0
    """Which of the model's adapters computes the request, from 1 on; 0: the model as it is."""
    min_tokens: int = 0
    grammar: str | None = None
    """What the answer must match, in the grammar library's own words; None: anything."""
    prompt_logprobs: int | None = None
    """As `logprobs`, for every token of the prompt but the first, which nothing precedes."""
    embed: bool = False
    """The prompt's embedding is wanted and no answer; `max_tokens` is 1, and that token goes nowhere."""
