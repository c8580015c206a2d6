"""Reading calls out of an answer as it comes. What only looked like a call is given as text, and nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tidegate_engine.server.tool_format import ToolFormat

_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_SPACE = re.compile(r"[\s,;\[\]]*")
_LONGEST_HEAD = 4096
"""Characters in which a call must have said its name."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call begins; `index` counts an answer's calls."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of a call's arguments, as the model wrote them."""

    index: int
    text: str


Event = Text | Call | Arguments


class ToolReader:
    """One answer. `push` its text, `finish` it once; `calls` counts what was found."""

    def __init__(self, used: ToolFormat, names: Collection[str]) -> None:
        self._used = used
        self._names = frozenset(names)
        self._state = self._text if used.marker else self._beginning
        self._held = ""
        self._opened = ""
        """What of a call is not told yet, to be given as text if it turns out to be none."""
        self._depth = 0
        self._in_string = self._escaped = False
        self._final = False
        self.calls = 0

    def push(self, text: str) -> list[Event]:
        """What is certain now."""
        self._held += text
        return list(self._read())

    def finish(self) -> list[Event]:
        """What is left, now that nothing can follow it."""
        self._final = True
        return list(self._read())

    def _read(self) -> Iterator[Event]:
        while True:
            state, held = self._state, self._held
            yield from state()
            if (state, held) == (self._state, self._held) or not self._held:
                return

    def _beginning(self) -> Iterator[Event]:
        """Of an answer that is a call where it begins with a brace."""
        start = self._held.lstrip()
        mark = self._used.optional_marker
        if start.startswith(mark) and mark:
            self._opened, self._held, self._state = mark, start[len(mark) :], self._between
        elif start.startswith("{"):
            self._held, self._state = start, self._head
        elif self._final or (start and not mark.startswith(start)):
            self._state = self._plain
        yield from ()

    def _plain(self) -> Iterator[Event]:
        text, self._held = self._held, ""
        if text:
            yield Text(text)

    def _text(self) -> Iterator[Event]:
        """Up to a marker; white space before a call is no text."""
        marker = self._used.marker
        found = self._held.find(marker)
        if found >= 0:
            text = self._held[:found].rstrip()
            self._opened, self._held = self._held[len(text) : found + len(marker)], self._held[found + len(marker) :]
            self._state = self._between
        elif self._final:
            text, self._held = self._held, ""
        else:
            sizes = range(min(len(marker) - 1, len(self._held)), 0, -1)
            kept = next((size for size in sizes if self._held.endswith(marker[:size])), 0)
            text = self._held[: len(self._held) - kept].rstrip()
            self._held = self._held[len(text) :]
        if text:
            yield Text(text)

    def _between(self) -> Iterator[Event]:
        """Before a call or after one."""
        space = _SPACE.match(self._held)
        rest = self._held[space.end() :] if space else self._held
        for mark in filter(None, (self._used.marker, self._used.after.strip("\n]"))):
            if rest.startswith(mark):
                self._held = rest[len(mark) :]
                if mark == self._used.marker:
                    self._opened = mark
                return
            if not self._final and mark.startswith(rest):
                return
        if rest.startswith("{"):
            self._opened += self._held[: len(self._held) - len(rest)] if self._opened else ""
            self._held, self._state = rest, self._head
        elif rest:
            yield from self._give_up()
        elif self._final:
            self._held = ""

    def _head(self) -> Iterator[Event]:
        """A call's name, whose arguments follow at once in nearly all cases."""
        match = _HEAD.match(self._held)
        if match:
            name = _decoded(match[1])
            if name not in self._names:
                yield from self._give_up()
                return
            self._held = self._held[match.end() :]
            self._depth, self._in_string, self._escaped = 0, False, False
            self._state = self._arguments
            yield self._begin(name)
            return
        try:
            found, end = json.JSONDecoder().raw_decode(self._held)
        except ValueError:
            if self._final or len(self._held) > _LONGEST_HEAD:
                yield from self._give_up()
            return
        if not isinstance(found, dict) or str(found.get("name")) not in self._names:
            yield from self._give_up()
            return
        arguments = found.get("arguments", found.get("parameters", {}))
        self._held, self._state = self._held[end:], self._between
        call = self._begin(found["name"])
        yield call
        yield Arguments(call.index, arguments if isinstance(arguments, str) else json.dumps(arguments))

    def _arguments(self) -> Iterator[Event]:
        """An object, to the brace that closes it."""
        end = len(self._held)
        for at, character in enumerate(self._held, 1):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._state, end = self._tail, at
                    break
        text, self._held = self._held[:end], self._held[end:]
        if text:
            yield Arguments(self.calls - 1, text)

    def _tail(self) -> Iterator[Event]:
        """The brace that closes the call; a call without one is one all the same."""
        rest = self._held.lstrip()
        if rest or self._final:
            self._held = rest.removeprefix("}")
            self._state = self._between
        yield from ()

    def _begin(self, name: str) -> Call:
        self._opened = ""
        self.calls += 1
        return Call(self.calls - 1, self._used.new_id(), name)

    def _give_up(self) -> Iterator[Event]:
        """It was none: what opened it is text, and in what follows a marker may still begin one."""
        opened, self._opened = self._opened, ""
        self._state = self._text if self._used.marker else self._plain
        if opened:
            yield Text(opened)


def _decoded(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted


def read_text(reader: ToolReader | None, text: str, ended: bool) -> list[Event]:
    """What a piece of an answer says; without a reader all of it is text."""
    if reader is None:
        return [Text(text)] if text else []
    return [*reader.push(text), *(reader.finish() if ended else [])]
