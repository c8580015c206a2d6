"""Answers in OpenAI's shapes."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from tidegate_engine.core.request import FinishReason
from tidegate_engine.server.answers import Answer
from tidegate_engine.server.tools import ToolCall


class ChatFinishReason(StrEnum):
    """FinishReason, and that the answer ended with calls."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    TOOL_CALLS = "tool_calls"


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Part of `usage`."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """What a request cost, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails

    @classmethod
    def of(cls, answer: Answer) -> Usage:
        """The answer's tokens so far."""
        prompt, generated = answer.prompt_tokens, answer.generated_tokens
        return cls(prompt, generated, prompt + generated, PromptTokensDetails(answer.cached_tokens))


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that might have been chosen."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token that was chosen."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Log probabilities in the shape of `/v1/chat/completions`."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Log probabilities in the shape of `/v1/completions`."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    """None for the first token of a prompt, which nothing precedes."""
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None


class ChatMessage(msgspec.Struct, frozen=True):
    """A whole answer; of nothing but calls the content is null."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    """One of `n` whole answers."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason


class ChatCompletion(msgspec.Struct, frozen=True):
    """The body of a chat answer that is not streamed."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class FunctionDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call's name, in its first event, or a piece of its arguments."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a call; id and type come in its first event."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of an answer."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """A piece of one of `n` answers."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason | None = None


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a streamed chat answer; `usage` is null but in the last one, and absent unless asked for."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class CompletionChoice(msgspec.Struct, frozen=True):
    """One answer of `/v1/completions`, or a piece of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class Completion(msgspec.Struct, frozen=True):
    """The body of `/v1/completions`, or one event of it."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    object: Literal["text_completion"] = "text_completion"


class Model(msgspec.Struct, frozen=True):
    """An entry of `/v1/models`."""

    id: str
    created: int
    max_model_len: int | None
    object: Literal["model"] = "model"
    owned_by: Literal["tidegate"] = "tidegate"


class ModelList(msgspec.Struct, frozen=True):
    """The body of `/v1/models`."""

    data: list[Model]
    object: Literal["list"] = "list"
