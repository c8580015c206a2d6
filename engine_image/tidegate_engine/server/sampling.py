"""From a valid request to prompts of token ids and the parameters their answers are sampled with."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate_engine.core.request import SamplingParams
from tidegate_engine.link.messages import Ready
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.protocol import ChatRequest, CompletionRequest, SamplingFields

_SEED_MASK = 2**63 - 1
_COMPLETION_TOKENS = 16
"""OpenAI's default of `max_tokens` for `/v1/completions`; chat answers may fill the context."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What this model and this cache can hold, in tokens."""

    vocab_size: int
    max_model_len: int
    kv_tokens: int

    @classmethod
    def of(cls, ready: Ready) -> Limits:
        """As the runtime found them."""
        return cls(ready.vocab_size, ready.max_model_len, ready.kv_blocks * ready.block_size)

    @property
    def context(self) -> int:
        """The longest prompt and answer together."""
        return min(self.max_model_len, self.kv_tokens)


def check_prompt(prompt: Sequence[int], limits: Limits, param: str) -> None:
    """Raises InvalidRequest for a prompt that is empty, out of the vocabulary, or can never fit."""
    if not prompt:
        raise InvalidRequest(f"{param}: is empty; give at least one token", param=param)
    outside = next((token for token in prompt if not 0 <= token < limits.vocab_size), None)
    if outside is not None:
        raise InvalidRequest(
            f"{param}: token id {outside} is not in the vocabulary; give ids from 0 to {limits.vocab_size - 1}",
            param=param,
        )
    if len(prompt) + 1 > limits.context:
        what = "model's context" if limits.max_model_len <= limits.kv_tokens else "key and value cache"
        raise InvalidRequest(
            f"{param}: {len(prompt)} tokens and one of an answer do not fit the {what} of {limits.context} tokens; "
            "shorten it",
            param=param,
        )


def sampling_params(
    call: ChatRequest | CompletionRequest,
    prompt_tokens: int,
    limits: Limits,
    eos_ids: Sequence[int],
    seed: int,
    choice: int,
) -> SamplingParams:
    """One choice's parameters; `max_tokens` is a bound, and is lowered to what still fits the context."""
    room = limits.context - prompt_tokens
    return SamplingParams(
        max_tokens=max(1, min(_max_tokens(call, room), room)),
        temperature=call.temperature,
        top_p=call.top_p,
        top_k=max(0, call.top_k),
        min_p=call.min_p,
        presence_penalty=call.presence_penalty,
        frequency_penalty=call.frequency_penalty,
        repetition_penalty=call.repetition_penalty,
        seed=seed,
        choice=choice,
        logprobs=_logprobs(call),
        prompt_logprobs=call.logprobs if isinstance(call, CompletionRequest) and call.echo else None,
        logit_bias=_logit_bias(call, limits),
        stop_token_ids=_stop_token_ids(call, limits, eos_ids),
        min_tokens=call.min_tokens,
    )


def seed_of(call: SamplingFields) -> int:
    """The user's seed, or a new one."""
    return secrets.randbits(63) if call.seed is None else call.seed & _SEED_MASK


def check_combinations(call: ChatRequest | CompletionRequest) -> None:
    """Raises InvalidRequest where fields that are right alone contradict each other."""
    if call.stream_options is not None and not call.stream:
        raise InvalidRequest("stream_options: is only for stream true; leave it out", param="stream_options")
    if call.stream_options is not None and call.stream_options.include_obfuscation:
        param = "stream_options.include_obfuscation"
        raise InvalidRequest(f"{param}: true is not supported here; leave it out", param=param)
    if isinstance(call, ChatRequest):
        if call.top_logprobs and not call.logprobs:
            raise InvalidRequest(
                f"top_logprobs: {call.top_logprobs} without logprobs true; add logprobs true", param="top_logprobs"
            )
        given, other = call.max_tokens, call.max_completion_tokens
        if given is not None and other is not None and given != other:
            raise InvalidRequest(
                f"max_tokens: {given} contradicts max_completion_tokens {other}; give one of them", param="max_tokens"
            )
    elif call.max_tokens == 0 and not call.echo:
        raise InvalidRequest("max_tokens: 0 is only for echo true; ask for 1 or more", param="max_tokens")
    wanted = _max_tokens(call, call.min_tokens)
    if call.min_tokens > wanted:
        raise InvalidRequest(
            f"min_tokens: {call.min_tokens} is more than max_tokens {wanted}; lower it", param="min_tokens"
        )


def _max_tokens(call: ChatRequest | CompletionRequest, room: int) -> int:
    if isinstance(call, CompletionRequest):
        return _COMPLETION_TOKENS if call.max_tokens is None else call.max_tokens
    return next((given for given in (call.max_completion_tokens, call.max_tokens) if given is not None), room)


def _logprobs(call: ChatRequest | CompletionRequest) -> int | None:
    if isinstance(call, CompletionRequest):
        return call.logprobs
    return (call.top_logprobs or 0) if call.logprobs else None


def _logit_bias(call: SamplingFields, limits: Limits) -> dict[int, float]:
    found: dict[int, float] = {}
    for key, bias in call.logit_bias.items():
        if not key.isascii() or not key.isdigit() or len(key) > 9 or int(key) >= limits.vocab_size:
            raise InvalidRequest(
                f"logit_bias: {key[:20]!r} is no token id of this model; give ids from 0 to {limits.vocab_size - 1}",
                param="logit_bias",
            )
        found[int(key)] = bias
    return found


def _stop_token_ids(call: SamplingFields, limits: Limits, eos_ids: Sequence[int]) -> tuple[int, ...]:
    outside = next((token for token in call.stop_token_ids if not 0 <= token < limits.vocab_size), None)
    if outside is not None:
        raise InvalidRequest(
            f"stop_token_ids: {outside} is not in the vocabulary; give ids from 0 to {limits.vocab_size - 1}",
            param="stop_token_ids",
        )
    ends = () if call.ignore_eos else tuple(eos_ids)
    return tuple(dict.fromkeys((*ends, *call.stop_token_ids)))
