"""A conversation as the model's chat template wants it, with the tools it may use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidegate_engine.server.chat_template import ChatTemplateError
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.protocol import Message
from tidegate_engine.server.service import ServedModel
from tidegate_engine.server.tool_format import described, instructions
from tidegate_engine.server.tools import Function, read_arguments

_SYSTEM = {"developer": "system"}
"""OpenAI's newer name of the same role; templates know the older one."""
Turn = dict[str, Any]


def rendered(messages: Sequence[Message], model: ServedModel, functions: Sequence[Function] = ()) -> str:
    """The text that the model's chat template makes of messages; raises InvalidRequest."""
    if model.template is None:
        raise InvalidRequest("messages: this model has no chat template; use /v1/completions", param="messages")
    native = model.tool_format.native
    turns = [_turn(message, f"messages[{position}]", native) for position, message in enumerate(messages)]
    if functions and not native:
        _tell(turns, instructions(functions))
    tools = [described(function) for function in functions] if native else []
    try:
        return model.template.render(turns, tools)
    except ChatTemplateError as error:
        raise InvalidRequest(f"messages: the model's chat template refuses them: {error}", param="messages") from error


def _turn(message: Message, at: str, native: bool) -> Turn:
    if message.content is None and message.role != "assistant":
        raise InvalidRequest(f"{at}.content: is missing; give the text", param=f"{at}.content")
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(f"{at}.tool_calls: only the assistant calls; leave it out", param=f"{at}.tool_calls")
    if message.tool_call_id is not None and message.role != "tool":
        raise InvalidRequest(f"{at}.tool_call_id: only a tool answers; leave it out", param=f"{at}.tool_call_id")
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidRequest(f"{at}.tool_call_id: is missing; give the id of the call", param=f"{at}.tool_call_id")
    turn: Turn = {"role": _SYSTEM.get(message.role, message.role), "content": message.text()}
    if message.name is not None:
        turn["name"] = message.name
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": read_arguments(call, f"{at}.tool_calls[{index}].function.arguments"),
                },
            }
            for index, call in enumerate(message.tool_calls)
        ]
    return turn if native else _plain(turn)


def _plain(turn: Turn) -> Turn:
    """For a template that knows no tools: calls and their answers as text, in Hermes' way."""
    turn.pop("tool_call_id", None)
    if turn["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{turn['content']}\n</tool_response>"}
    calls = [call["function"] for call in turn.pop("tool_calls", [])]
    lines = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls]
    turn["content"] = "\n".join(filter(None, [turn["content"], *lines]))
    return turn


def _tell(turns: list[Turn], text: str) -> None:
    if turns and turns[0]["role"] == "system":
        turns[0]["content"] += f"\n\n{text}"
    else:
        turns.insert(0, {"role": "system", "content": text})
