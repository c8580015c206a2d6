"""Reading a request's JSON strictly: what would change the answer and is not supported is refused, never ignored."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from tidegate_engine.server.errors import InvalidRequest

T = TypeVar("T", bound=msgspec.Struct)
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_CHOICES = {
    "response_format.type": "text, json_object or json_schema",
    "tools.type": "function",
    "role": "system, developer, user, assistant or tool",
    "type": "text",
}
"""What a field of few values may be; msgspec does not say."""
_SHOWN = 60
"""Characters of a wrong value that are repeated to the client."""


@dataclass(frozen=True, slots=True)
class NoOp:
    """An unsupported field, and which of its values mean the same as leaving it out; null always does."""

    values: tuple[object, ...] | None
    """None: every value."""

    def __call__(self, value: object) -> bool:
        """Whether the value changes nothing."""
        return self.values is None or any(type(value) is type(known) and value == known for known in self.values)


anything = NoOp(None)
"""The field only labels a request; no value of it changes the answer."""


def one_of(*values: object) -> NoOp:
    """These values are what happens anyway."""
    return NoOp(values)


def read_request(body: bytes, kind: type[T], no_ops: Mapping[str, NoOp]) -> T:
    """The request, with null read as absent; raises InvalidRequest naming the field, its value and what to give."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON ({error}); send one JSON object") from error
    if not isinstance(raw, dict):
        raise InvalidRequest(f"the body is {_shown(raw)}; send one JSON object")
    supported = kind.__struct_fields__
    given: dict[str, Any] = {}
    for name, value in raw.items():
        if name in supported:
            if value is not None:
                given[name] = value
        elif name not in no_ops:
            close = difflib.get_close_matches(name, supported, n=1)
            hint = f"did you mean {close[0]}?" if close else "leave it out"
            raise InvalidRequest(f"{name}: no such field; {hint}", param=name)
        elif value is not None and not no_ops[name](value):
            raise InvalidRequest(f"{name}: {_shown(value)} is not supported here; leave {name} out", param=name)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), given) from error


def _explained(message: str, given: Mapping[str, Any]) -> InvalidRequest:
    match = _AT.match(message)
    what, path = (match["what"], match["path"] or "") if match else (message, "")
    parent = path.lstrip(".").split("[...]")[0]
    quoted = re.findall(r"`([^`]*)`", what)
    if what.startswith("Object missing required field"):
        param = f"{parent}.{quoted[0]}" if parent else quoted[0]
        return InvalidRequest(f"{param}: is missing; give it", param=param)
    if what.startswith("Object contains unknown field"):
        param = f"{parent}.{quoted[0]}" if parent else quoted[0]
        return InvalidRequest(f"{param}: is not supported here; leave it out", param=param)
    found = _at(given, parent)
    expected = re.sub(r", got `.*$", "", what).replace("Expected", "expected", 1)
    if what.startswith("Invalid enum value"):
        known = re.sub(r"\[\d+\]", "", parent)
        expected = f"expected {_CHOICES.get(known) or _CHOICES.get(known.rpartition('.')[2], 'another value')}"
    return InvalidRequest(f"{parent}: {_shown(found)} is not accepted, {expected}; change it", param=parent or None)


def _at(given: Any, path: str) -> Any:
    """The value at a path such as `messages[0].content`; the nearest one known where the path says `[...]`."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if index and isinstance(given, list) and int(index) < len(given):
            given = given[int(index)]
        elif name and isinstance(given, dict) and name in given:
            given = given[name]
        else:
            break
    return given


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
