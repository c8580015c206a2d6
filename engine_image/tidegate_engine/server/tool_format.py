"""How the families of models write calls: the marker before them, the JSON of each, and what a grammar makes of it.

Hermes and Qwen: `<tool_call>` a line each `</tool_call>`; Mistral: `[TOOL_CALLS]` and a list; Llama 3: nothing but the
JSON, with `parameters` for `arguments`. A model whose template knows no tools is told of them in Hermes' way.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_engine.server.structured import Form, embedded
from tidegate_engine.server.tokenizer import Tokenizer
from tidegate_engine.server.tools import Function

_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One family's way. `marker` is empty where an answer that begins with a brace is a call."""

    name: str
    marker: str
    before: str
    """Between the marker and the first call."""
    after: str
    """After each call, or after the last where `between` joins them."""
    between: str | None
    """Between calls; None where there is only one to an answer."""
    arguments: str = "arguments"
    optional_marker: str = ""
    native: bool = True
    """Whether the model's own template tells it of tools."""
    id_length: int = 24

    def new_id(self) -> str:
        """Of a call. Mistral's template accepts nothing but nine letters and digits."""
        random = "".join(secrets.choice(_ALPHABET) for _ in range(self.id_length))
        return random if self.id_length == 9 else f"call_{random}"


_HERMES = ToolFormat("hermes", "<tool_call>", "\n", "\n</tool_call>", "\n")
_MISTRAL = ToolFormat("mistral", "[TOOL_CALLS]", "[", "]", ", ", id_length=9)
_LLAMA3 = ToolFormat("llama3", "", "", "", None, arguments="parameters", optional_marker="<|python_tag|>")
_GENERIC = ToolFormat("hermes", "<tool_call>", "\n", "\n</tool_call>", "\n", native=False)


def tool_format(template: str) -> ToolFormat:
    """What a chat template is written for."""
    if "[TOOL_CALLS]" in template:
        return _MISTRAL
    if "<|python_tag|>" in template or "ipython" in template:
        return _LLAMA3
    return _HERMES if "<tool_call>" in template else _GENERIC


def visible_bytes(used: ToolFormat, tokenizer: Tokenizer) -> Sequence[bytes]:
    """Tokens' bytes with the markers' own: where these are special tokens, their text is hidden otherwise."""
    marks = _special(used, tokenizer)
    if not marks:
        return tokenizer.token_bytes
    found = list(tokenizer.token_bytes)
    for id, text in marks.items():
        found[id] = text.encode()
    return found


def calls_form(
    used: ToolFormat, functions: Sequence[Function], tokenizer: Tokenizer, parallel: bool, params: Mapping[str, str]
) -> Form:
    """A grammar of nothing but calls; `params` names by function the field that an error should name."""
    rules = _Rules(used, tokenizer)
    return Form(f"start: {rules.calls(functions, parallel, params)}\n{rules.text()}", "tools")


def free_form(
    used: ToolFormat,
    functions: Sequence[Function],
    tokenizer: Tokenizer,
    parallel: bool,
    params: Mapping[str, str],
    answer: str | None,
) -> Form:
    """A grammar of calls or something else: the Lark term `answer`, or any text, which calls may follow."""
    rules = _Rules(used, tokenizer)
    calls = rules.calls(functions, parallel, params, marker=answer is not None or not used.marker)
    if answer is not None:
        start = f"{calls} | {answer}"
    elif not used.marker:
        start = f"{calls} | /[^{{](.|\\n)*/"
    else:
        start = f"{rules.lead()} {calls} | TEXT"
        rules.add("TEXT", "/(.|\\n)*/")
    return Form(f"start: {start}\n{rules.text()}", "tools")


class _Rules:
    """Lark rules as they are found to be needed."""

    def __init__(self, used: ToolFormat, tokenizer: Tokenizer) -> None:
        self._used = used
        marks = {text: id for id, text in _special(used, tokenizer).items()}
        self._special_marker = marks.get(used.marker)
        self._rules: list[str] = []

    def add(self, name: str, body: str) -> str:
        self._rules.append(f"{name}: {body}")
        return name

    def text(self) -> str:
        return "\n".join(self._rules) + "\n"

    def _marker(self) -> str:
        marker = self._used.marker
        return json.dumps(marker) if self._special_marker is None else f"<[{self._special_marker}]>"

    def lead(self) -> str:
        """Text up to and with the marker."""
        if self._special_marker is not None:
            return f"TEXT {self._marker()}"
        return self.add("lead[lazy]", f"TEXT {self._marker()}").removesuffix("[lazy]")

    def calls(
        self, functions: Sequence[Function], parallel: bool, params: Mapping[str, str], marker: bool = True
    ) -> str:
        used = self._used
        for index, function in enumerate(functions):
            head = f'{{"name": {json.dumps(function.name)}, "{used.arguments}": '
            schema = _of_object(function.parameters)
            self.add(f"args_{index}", embedded(schema, params[function.name]))
            self.add(f"call_{index}", f'{json.dumps(head)} args_{index} "}}"')
        self.add("call", " | ".join(f"call_{index}" for index in range(len(functions))))
        terms = [self._marker()] if marker and used.marker else []
        terms += [json.dumps(used.before)] if used.before else []
        terms.append("call")
        # Hermes closes each call before it opens the next.
        closes = json.dumps(used.after) if used.after else ""
        if parallel and used.between is not None:
            joined = json.dumps(used.between)
            if used.name == "hermes":
                joined = f"{json.dumps(used.after + used.between)} {self._marker()} {json.dumps(used.before)}"
            terms.append(f"({joined} call)*")
        return " ".join([*terms, closes])


def _special(used: ToolFormat, tokenizer: Tokenizer) -> dict[int, str]:
    """The markers that are tokens without text of their own, by id."""
    wanted = [mark for mark in (used.marker, used.optional_marker) if mark]
    found = {}
    for mark in wanted:
        id = tokenizer.encoder.token_to_id(mark)
        if id is not None and id < len(tokenizer.token_bytes) and not tokenizer.token_bytes[id]:
            found[id] = mark
    return found


def _of_object(schema: dict[str, Any] | None) -> dict[str, Any]:
    if not schema:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return schema if "type" in schema or "$ref" in schema else {"type": "object", **schema}


def instructions(functions: Sequence[Function]) -> str:
    """What a model is told whose template knows no tools."""
    lines = "\n".join(json.dumps(described(function), ensure_ascii=False) for function in functions)
    return (
        "You may call functions to help with the user's request. Each line within <tools></tools> describes one:\n"
        f"<tools>\n{lines}\n</tools>\n"
        "For each call answer with its name and arguments as a JSON object within <tool_call></tool_call>:\n"
        '<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call>'
    )


def described(function: Function) -> dict[str, Any]:
    """A tool as templates expect it."""
    found: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        found["description"] = function.description
    found["parameters"] = _of_object(function.parameters)
    return {"type": "function", "function": found}
