"""What an answer must look like where there are tools to call."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.protocol import ChatRequest
from tidegate_engine.server.service import ServedModel
from tidegate_engine.server.structured import Form, embedded
from tidegate_engine.server.tool_format import calls_form, free_form
from tidegate_engine.server.tools import Tool, callable_now, offered


def tool_form(call: ChatRequest, model: ServedModel) -> Form | None:
    """Calls, where one is required; calls or a free answer, where a tool is strict, the answer has a form as
    well, or there may be one call only.

    None where the model may say what it likes, or has no tools. Raises InvalidRequest naming the field.
    """
    functions = callable_now(offered(call.tools, call.tool_choice), call.tool_choice)
    if not functions:
        return None
    used, parallel, tools = model.tool_format, call.parallel_tool_calls, call.tools or []
    params = _params(tools)
    forced = call.tool_choice not in (None, "auto")
    if forced and call.structured_outputs is not None:
        param = "structured_outputs"
        raise InvalidRequest(f"{param}: contradicts tool_choice; leave it out", param=param)
    if forced:
        return calls_form(used, functions, model.tokenizer, parallel, params)
    answer = _answer(call)
    if answer is None and parallel and not any(function.strict for function in functions):
        return None
    return free_form(used, functions, model.tokenizer, parallel, params, answer)


def _params(tools: Sequence[Tool]) -> dict[str, str]:
    return {tool.function.name: f"tools[{index}].function.parameters" for index, tool in enumerate(tools)}


def _answer(call: ChatRequest) -> str | None:
    """The form of an answer that is no call, as a term of the grammar."""
    if call.structured_outputs is not None:
        raise InvalidRequest(
            "structured_outputs: is not supported beside tools; use response_format", param="structured_outputs"
        )
    asked = call.response_format
    if call.form() is None or asked is None:
        return None
    schema = asked.json_schema.schema if asked.json_schema is not None else None
    return embedded({"type": "object"} if schema is None else schema, "response_format.json_schema.schema")
