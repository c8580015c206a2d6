"""A model whose every token tells whether the whole prefix before it was right: the oracle of the state machines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tidegate_engine.core.request import FinishReason, SamplingParams

VOCABULARY = 3
STOP_TOKEN = 2
START = b"start"


def after(state: bytes, token: int) -> bytes:
    """The digest of a prefix with one more token."""
    return hashlib.blake2b(state + bytes([token]), digest_size=8).digest()


def next_token(state: bytes) -> int:
    """What the model says after a prefix."""
    return state[0] % VOCABULARY


def expected_answer(prompt: Sequence[int], params: SamplingParams) -> tuple[list[int], FinishReason]:
    """What the model says without any cache, batch or chunk."""
    state = START
    for token in prompt:
        state = after(state, token)
    answer: list[int] = []
    while True:
        answer.append(next_token(state))
        if answer[-1] in params.stop_token_ids and not params.ignore_eos and len(answer) > params.min_tokens:
            return answer, FinishReason.STOP
        if len(answer) == params.max_tokens:
            return answer, FinishReason.LENGTH
        state = after(state, answer[-1])
