"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tidegate_engine.core.request import FinishReason
from tidegate_engine.server.answers import Answer, Delta
from tidegate_engine.server.chat_template import ChatTemplateError
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.generate import GenerateEndpoint
from tidegate_engine.server.logprobs import chat_logprobs
from tidegate_engine.server.prompts import encoded
from tidegate_engine.server.protocol import ChatRequest, Message, read_chat
from tidegate_engine.server.responses import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    Usage,
)
from tidegate_engine.server.service import ServedModel

_SYSTEM = {"developer": "system"}
"""OpenAI's newer name of the same role; templates know the older one."""


class ChatEndpoint(GenerateEndpoint[ChatRequest]):
    """Messages in, the assistant's next message out."""

    id_prefix = "chatcmpl"

    def read(self, body: bytes) -> ChatRequest:
        """See GenerateEndpoint."""
        return read_chat(body)

    async def prompts(self, call: ChatRequest, model: ServedModel) -> list[tuple[str, list[int]]]:
        """See GenerateEndpoint."""
        text = rendered(call.messages, model)
        return [("messages", await encoded(model.tokenizer, text, add_special_tokens=False))]

    def whole(self, call: ChatRequest, model: ServedModel, answer: Answer, choices: Sequence[Delta]) -> msgspec.Struct:
        """See GenerateEndpoint."""
        return ChatCompletion(
            answer.id,
            answer.created,
            model.name,
            [
                ChatChoice(
                    delta.choice.index,
                    ChatMessage(delta.text),
                    chat_logprobs(model.tokenizer, delta) if call.logprobs else None,
                    delta.finish_reason or FinishReason.ABORT,
                )
                for delta in choices
            ],
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
        if delta.text or delta.records:
            logprobs = chat_logprobs(model.tokenizer, delta) if call.logprobs else None
            found.append(ChatChunkChoice(index, ChatDelta(content=delta.text), logprobs))
        if delta.finish_reason is not None:
            found.append(ChatChunkChoice(index, ChatDelta(), finish_reason=delta.finish_reason))
        usage: UnsetType | None = None if call.stream_options and call.stream_options.include_usage else UNSET
        return [ChatChunk(answer.id, answer.created, model.name, [choice], usage) for choice in found]

    def usage_chunk(self, model: ServedModel, answer: Answer, usage: Usage) -> msgspec.Struct:
        """See GenerateEndpoint."""
        return ChatChunk(answer.id, answer.created, model.name, [], usage)


def rendered(messages: Sequence[Message], model: ServedModel) -> str:
    """The text that the model's chat template makes of messages; raises InvalidRequest."""
    if model.template is None:
        raise InvalidRequest("messages: this model has no chat template; use /v1/completions", param="messages")
    for position, message in enumerate(messages):
        if message.content is None and message.role != "assistant":
            param = f"messages[{position}].content"
            raise InvalidRequest(f"{param}: is missing; give the text", param=param)
    try:
        return model.template.render([_for_template(message) for message in messages])
    except ChatTemplateError as error:
        raise InvalidRequest(f"messages: the model's chat template refuses them: {error}", param="messages") from error


def _for_template(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": _SYSTEM.get(message.role, message.role), "content": message.text()}
    if message.name is not None:
        found["name"] = message.name
    return found
