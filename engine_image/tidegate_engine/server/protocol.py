"""What clients may ask for, in OpenAI's names, with vLLM's for what OpenAI has no name for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidegate_engine.server.fields import NoOp, anything, one_of, read_request
from tidegate_engine.server.structured import Form, ResponseFormat, StructuredOutputs, form_of
from tidegate_engine.server.tools import Tool, ToolCall, ToolChoice

_WORK_NO_OPS: Mapping[str, NoOp] = {"user": anything}
_CHAT_AND_TEXT_NO_OPS: Mapping[str, NoOp] = {
    **_WORK_NO_OPS,
    "metadata": anything,
    "safety_identifier": anything,
    "prompt_cache_key": anything,
    "prompt_cache_options": anything,
    "prompt_cache_retention": anything,
    "store": one_of(False),
    "service_tier": one_of("auto", "default"),
    "best_of": one_of(1),
    "skip_special_tokens": one_of(True),
    "spaces_between_special_tokens": one_of(True),
    "use_beam_search": one_of(False),
    "length_penalty": one_of(1, 1.0),
    "prompt_logprobs": one_of(),
    "truncate_prompt_tokens": one_of(),
}
_CHAT_NO_OPS: Mapping[str, NoOp] = {
    **_CHAT_AND_TEXT_NO_OPS,
    "functions": one_of([]),
    "function_call": one_of("none", "auto"),
    "modalities": one_of(["text"]),
    "moderation": one_of(),
    "audio": one_of(),
    "prediction": one_of(),
    "reasoning_effort": one_of("none"),
    "verbosity": one_of("medium"),
    "web_search_options": one_of(),
    "add_generation_prompt": one_of(True),
    "continue_final_message": one_of(False),
    "chat_template_kwargs": one_of({}),
    "documents": one_of([]),
    "echo": one_of(False),
}
_COMPLETION_NO_OPS: Mapping[str, NoOp] = {**_CHAT_AND_TEXT_NO_OPS, "suffix": one_of("")}
_EMBEDDING_NO_OPS: Mapping[str, NoOp] = {**_WORK_NO_OPS, "dimensions": one_of(), "truncate_prompt_tokens": one_of()}
_TOKENIZE_NO_OPS: Mapping[str, NoOp] = {
    "add_generation_prompt": one_of(True),
    "continue_final_message": one_of(False),
    "chat_template": one_of(),
    "chat_template_kwargs": one_of({}),
    "tools": one_of([]),
}

Count = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopString = Annotated[str, Meta(min_length=1, max_length=1024)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only with `stream`."""

    include_usage: bool = False
    include_obfuscation: bool = False


class WorkFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every request takes that keeps the model busy."""

    model: str
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """The lower, the sooner, as in vLLM; see core.scheduler for what a level is worth."""
    deadline_s: Annotated[float, Meta(gt=0, le=86400)] | None = None
    """Seconds after which nobody wants the answer any more; it is ended, and its cache freed."""


class SamplingFields(WorkFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both ways of asking for text take."""

    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=2**31)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] = 1.0
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=16)] | None = None
    stop_token_ids: Annotated[list[int], Meta(max_length=128)] = []
    include_stop_str_in_output: bool = False
    logit_bias: Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)] = {}
    ignore_eos: bool = False
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    def form(self) -> Form | None:
        """What the answer must look like; raises InvalidRequest."""
        return form_of(self.response_format, self.structured_outputs)

    def stops(self) -> list[str]:
        """The stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation. Clients send an assistant's turn back as they got it, hence the empty fields."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    """Of a tool's answer: the call that it answers."""
    annotations: Annotated[list[int], Meta(max_length=0)] | None = None
    reasoning_content: None = None

    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class ChatRequest(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True


class CompletionRequest(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`. A prompt is text or token ids; a list of either asks for several answers."""

    prompt: str | Annotated[list[str | int | list[int]], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    """0 only with `echo`: the prompt alone, which is how evaluations ask for its log probabilities."""
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool = False


class EmbeddingRequest(WorkFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/embeddings`. An input is text or token ids; a list of either asks for several embeddings."""

    input: str | Annotated[list[str | int | list[int]], Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /tokenize`, as vLLM has it: a text, or the messages of a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    """Default: true for a text, false for messages, whose template writes them itself."""
    return_token_strs: bool = False


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /detokenize`, as vLLM has it."""

    model: str | None = None
    tokens: list[int]


def read_chat(body: bytes) -> ChatRequest:
    """Raises InvalidRequest naming the field at fault."""
    return read_request(body, ChatRequest, _CHAT_NO_OPS)


def read_completion(body: bytes) -> CompletionRequest:
    """Raises InvalidRequest naming the field at fault."""
    return read_request(body, CompletionRequest, _COMPLETION_NO_OPS)


def read_embedding(body: bytes) -> EmbeddingRequest:
    """Raises InvalidRequest naming the field at fault."""
    return read_request(body, EmbeddingRequest, _EMBEDDING_NO_OPS)


def read_tokenize(body: bytes) -> TokenizeRequest:
    """Raises InvalidRequest naming the field at fault."""
    return read_request(body, TokenizeRequest, _TOKENIZE_NO_OPS)


def read_detokenize(body: bytes) -> DetokenizeRequest:
    """Raises InvalidRequest naming the field at fault."""
    return read_request(body, DetokenizeRequest, {})


NO_OPS: Mapping[type[msgspec.Struct], Mapping[str, NoOp]] = {
    ChatRequest: _CHAT_NO_OPS,
    CompletionRequest: _COMPLETION_NO_OPS,
    EmbeddingRequest: _EMBEDDING_NO_OPS,
    TokenizeRequest: _TOKENIZE_NO_OPS,
    DetokenizeRequest: {},
}
"""By request, the fields that are known, not supported, and accepted where they change nothing."""
