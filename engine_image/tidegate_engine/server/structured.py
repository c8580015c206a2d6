"""The fields that give an answer a form, in OpenAI's names (`response_format`) and vLLM's (`structured_outputs`)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from llguidance import LLMatcher
from msgspec import Meta

from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.json_schema import checked_schema
from tidegate_engine.server.narrowing import narrowed

Schema = dict[str, Any] | bool

_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""White space as Python and most training data write it, and nowhere else: a small model left free to write more of it
may never stop."""


class NamedSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`strict` makes no difference: whatever the schema says is held."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str | None = None
    schema: Schema | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What OpenAI's clients ask for."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What vLLM's clients ask for; exactly one of them."""

    json: Schema | str | None = None
    regex: Annotated[str, Meta(min_length=1)] | None = None
    choice: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=10_000)] | None = None
    grammar: Annotated[str, Meta(min_length=1)] | None = None
    """Lark, in llguidance's variant."""
    json_object: bool | None = None


class Form(msgspec.Struct, frozen=True):
    """A grammar for llguidance, and the field that an error about it should name."""

    grammar: str
    param: str


def json_form(schema: Schema, param: str) -> Form:
    """A JSON value; raises InvalidRequest naming the keyword that is not supported."""
    kept = narrowed(checked_schema(schema, param))
    return Form(LLMatcher.grammar_from_json_schema(json.dumps(kept | {"x-guidance": _STYLE})), param)


def embedded(schema: Schema, param: str) -> str:
    """The same as a term of a larger grammar in Lark."""
    return "%json " + json.dumps(narrowed(checked_schema(schema, param)) | {"x-guidance": _STYLE})


def form_of(response_format: ResponseFormat | None, structured: StructuredOutputs | None) -> Form | None:
    """What the answer must look like, None where it may be anything. Raises InvalidRequest."""
    asked = _of_response_format(response_format) if response_format is not None else None
    if structured is None:
        return asked
    if asked is not None:
        raise InvalidRequest(
            "structured_outputs: contradicts response_format; give one of them", param="structured_outputs"
        )
    return _of_structured_outputs(structured)


def _of_response_format(asked: ResponseFormat) -> Form | None:
    param = "response_format.json_schema"
    if (asked.json_schema is None) == (asked.type == "json_schema"):
        what = "is missing; give it" if asked.json_schema is None else "is only for type json_schema; leave it out"
        raise InvalidRequest(f"{param}: {what}", param=param)
    if asked.type == "text":
        return None
    if asked.json_schema is None or asked.json_schema.schema is None:
        return json_form({"type": "object"}, "response_format")
    return json_form(asked.json_schema.schema, f"{param}.schema")


def _of_structured_outputs(asked: StructuredOutputs) -> Form:
    given = [name for name in asked.__struct_fields__ if getattr(asked, name) not in (None, False)]
    if asked.json is False:
        given.append("json")
    if len(given) != 1:
        raise InvalidRequest(
            f"structured_outputs: has {len(given)} of json, regex, choice, grammar and json_object; give one",
            param="structured_outputs",
        )
    param = f"structured_outputs.{given[0]}"
    if asked.json is not None:
        return json_form(_read_schema(asked.json, param), param)
    if asked.regex is not None:
        return Form(LLMatcher.grammar_from_regex(asked.regex), param)
    if asked.choice is not None:
        return Form(LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, asked.choice))), param)
    if asked.grammar is not None:
        if "%json" in asked.grammar:
            raise InvalidRequest(f"{param}: %json is not supported in a grammar here; use json alone", param=param)
        return Form(LLMatcher.grammar_from_lark(asked.grammar), param)
    return json_form({"type": "object"}, param)


def _read_schema(given: Schema | str, param: str) -> Schema:
    if not isinstance(given, str):
        return given
    try:
        read = msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{param}: is not JSON ({error}); give a schema", param=param) from error
    if not isinstance(read, dict | bool):
        raise InvalidRequest(f"{param}: is no schema; give an object", param=param)
    return read
