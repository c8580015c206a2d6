"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from tidegate_engine.core.request import FinishReason
from tidegate_engine.server.answers import Answer, Delta
from tidegate_engine.server.conversation import rendered
from tidegate_engine.server.generate import GenerateEndpoint
from tidegate_engine.server.logprobs import chat_logprobs
from tidegate_engine.server.prompts import encoded
from tidegate_engine.server.protocol import ChatRequest, read_chat
from tidegate_engine.server.responses import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatFinishReason,
    ChatMessage,
    FunctionDelta,
    ToolCallDelta,
    Usage,
)
from tidegate_engine.server.service import ServedModel
from tidegate_engine.server.structured import Form
from tidegate_engine.server.tool_form import tool_form
from tidegate_engine.server.tool_reader import Call, Event, Text, ToolReader, read_text
from tidegate_engine.server.tools import CalledFunction, ToolCall, check_tools, offered


class ChatEndpoint(GenerateEndpoint[ChatRequest]):
    """Messages in, the assistant's next message out."""

    id_prefix = "chatcmpl"

    def read(self, body: bytes) -> ChatRequest:
        """See GenerateEndpoint."""
        return read_chat(body)

    async def prompts(self, call: ChatRequest, model: ServedModel) -> list[tuple[str, list[int]]]:
        """See GenerateEndpoint."""
        text = rendered(call.messages, model, offered(call.tools, call.tool_choice))
        return [("messages", await encoded(model.tokenizer, text, add_special_tokens=False))]

    def form(self, call: ChatRequest, model: ServedModel) -> Form | None:
        """See GenerateEndpoint."""
        check_tools(call.tools or (), call.tool_choice)
        return tool_form(call, model) or call.form()

    def reader(self, call: ChatRequest, model: ServedModel) -> ToolReader | None:
        """See GenerateEndpoint."""
        functions = offered(call.tools, call.tool_choice)
        return ToolReader(model.tool_format, [function.name for function in functions]) if functions else None

    def whole(self, call: ChatRequest, model: ServedModel, answer: Answer, choices: Sequence[Delta]) -> msgspec.Struct:
        """See GenerateEndpoint."""
        return ChatCompletion(
            answer.id,
            answer.created,
            model.name,
            [_choice(call, model, delta) for delta in choices],
            Usage.of(answer),
        )

    def chunks(
        self, call: ChatRequest, model: ServedModel, answer: Answer, delta: Delta, first: bool
    ) -> list[msgspec.Struct]:
        """See GenerateEndpoint. The role comes in the first event, the finish reason in one of its own."""
        index = delta.choice.index
        found: list[ChatChunkChoice] = []
        if first:
            found.append(ChatChunkChoice(index, ChatDelta(role="assistant", content="")))
        pieces = [_piece(news) for news in _read(delta)]
        if delta.records and not pieces:
            pieces.append(ChatDelta())
        logprobs = chat_logprobs(model.tokenizer, delta) if call.logprobs else None
        for piece in pieces:
            found.append(ChatChunkChoice(index, piece, logprobs))
            logprobs = None
        if delta.finish_reason is not None:
            found.append(ChatChunkChoice(index, ChatDelta(), finish_reason=_reason(delta)))
        usage: UnsetType | None = None if call.stream_options and call.stream_options.include_usage else UNSET
        return [ChatChunk(answer.id, answer.created, model.name, [choice], usage) for choice in found]

    def usage_chunk(self, model: ServedModel, answer: Answer, usage: Usage) -> msgspec.Struct:
        """See GenerateEndpoint."""
        return ChatChunk(answer.id, answer.created, model.name, [], usage)


def _choice(call: ChatRequest, model: ServedModel, delta: Delta) -> ChatChoice:
    texts: list[str] = []
    calls: list[tuple[Call, list[str]]] = []
    for news in _read(delta):
        if isinstance(news, Text):
            texts.append(news.text)
        elif isinstance(news, Call):
            calls.append((news, []))
        else:
            calls[news.index][1].append(news.text)
    content = "".join(texts)
    tool_calls = [ToolCall(called.id, CalledFunction(called.name, "".join(pieces))) for called, pieces in calls]
    message = ChatMessage(content or None, tool_calls=tool_calls) if calls else ChatMessage(content)
    logprobs = chat_logprobs(model.tokenizer, delta) if call.logprobs else None
    return ChatChoice(delta.choice.index, message, logprobs, _reason(delta))


def _read(delta: Delta) -> list[Event]:
    return read_text(delta.choice.reader, delta.text, delta.finish_reason is not None)


def _piece(news: Event) -> ChatDelta:
    if isinstance(news, Text):
        return ChatDelta(content=news.text)
    if isinstance(news, Call):
        began = ToolCallDelta(news.index, FunctionDelta(name=news.name, arguments=""), news.id, "function")
        return ChatDelta(tool_calls=[began])
    return ChatDelta(tool_calls=[ToolCallDelta(news.index, FunctionDelta(arguments=news.text))])


def _reason(delta: Delta) -> ChatFinishReason:
    reason = delta.finish_reason or FinishReason.ABORT
    called = delta.choice.reader is not None and delta.choice.reader.calls > 0
    return ChatFinishReason.TOOL_CALLS if called and reason is FinishReason.STOP else ChatFinishReason(reason)
