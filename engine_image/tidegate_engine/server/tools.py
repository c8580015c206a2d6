"""The fields of tool calls, and a conversation with them as a chat template reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tidegate_engine.server.errors import InvalidRequest

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model may call. `parameters` is a JSON schema of an object."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    """Hold the arguments to the schema also where the model is free to call or not."""


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of `tools`."""

    type: Literal["function"]
    function: Function


class FunctionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which one to call."""

    name: Name


class NamedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `tool_choice` that leaves none."""

    type: Literal["function"]
    function: FunctionName


class CalledFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call's name, and its arguments as the model wrote them: JSON in a string."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call, in an answer and in the conversation that is sent back."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


ToolChoice = Literal["none", "auto", "required"] | NamedTool


def check_tools(tools: Sequence[Tool], choice: ToolChoice | None) -> None:
    """Raises InvalidRequest where tools and the choice of one contradict each other."""
    names = [tool.function.name for tool in tools]
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise InvalidRequest(f"tools: two are named {twice!r}; rename one", param="tools")
    if choice in (None, "none", "auto"):
        return
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        param = "tool_choice.function.name"
        raise InvalidRequest(f"{param}: {choice.function.name!r} is none of the tools; give one of them", param=param)
    if not names:
        raise InvalidRequest("tool_choice: there are no tools to choose from; give tools", param="tool_choice")


def offered(tools: Sequence[Tool] | None, choice: ToolChoice | None) -> list[Function]:
    """The functions that may be called: with `none` the model is not even told of any."""
    if not tools or choice == "none":
        return []
    return [tool.function for tool in tools]


def callable_now(functions: Sequence[Function], choice: ToolChoice | None) -> list[Function]:
    """Those of them that this answer may call."""
    if isinstance(choice, NamedTool):
        return [function for function in functions if function.name == choice.function.name]
    return list(functions)


def read_arguments(call: ToolCall, param: str) -> dict[str, Any]:
    """The arguments of a call in a conversation, which templates want as an object."""
    try:
        found = msgspec.json.decode(call.function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{param}: is not JSON ({error}); send back what came", param=param) from error
    if not isinstance(found, dict):
        raise InvalidRequest(f"{param}: is no JSON object; send back what came", param=param)
    return found
