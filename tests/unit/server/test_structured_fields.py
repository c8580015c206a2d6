"""Which forms of an answer may be asked for, and that those which cannot be held are refused by name and place."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from engine_process import NAME, EngineProcess
from llguidance import LLMatcher
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.grammars import LARGEST, Grammars
from tidegate_engine.server.json_schema import checked_schema
from tidegate_engine.server.narrowing import narrowed
from tidegate_engine.server.structured import Form, json_form

REFUSED = [
    pytest.param({"properties": {"a": {"uniqueItems": True}}}, "s.properties.a.uniqueItems", id="a word deep inside"),
    pytest.param({"anyOf": [{}, {"not": {}}]}, "s.anyOf[1].not", id="a word in a list"),
    pytest.param({"items": {"if": {}}}, "s.items.if", id="a word in items"),
    pytest.param({"$defs": {"a": {"contains": {}}}}, "s.$defs.a.contains", id="a word in a definition"),
    pytest.param({"type": "string", "minLenght": 3}, "did you mean minLength?", id="a misspelt word, with a guess"),
    pytest.param({"type": "string", "nullable": True}, 'add "null" to type', id="OpenAPI's null"),
    pytest.param({"exclusiveMinimum": True, "minimum": 3}, "give a number", id="draft 4's bounds"),
    pytest.param({"properties": [1]}, "s.properties", id="a list of properties"),
    pytest.param({"items": 7}, "s.items", id="a number as a schema"),
    pytest.param({"multipleOf": 9999991}, "multipleOf", id="a divisor that takes minutes to compile"),
    pytest.param({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, "multipleOf", id="two that meet"),
    pytest.param({"multipleOf": 0.00001, "minimum": 1}, None, id="a small one is quick"),
    pytest.param({"type": "string", "format": "colour"}, "colour", id="an unknown format"),
    pytest.param({"type": "string", "pattern": "a(?=b)"}, "look-around", id="a pattern that looks around"),
    pytest.param({"$ref": "#/$defs/none"}, "/$defs/none", id="a reference to nothing"),
    pytest.param({"$ref": "http://example.com/s"}, "http://example.com/s", id="a reference elsewhere"),
    pytest.param({"type": "integer", "minimum": 5, "maximum": 3}, "minimum", id="bounds that leave nothing"),
    pytest.param({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf", id="branches that meet"),
    pytest.param({"x-guidance": {"lenient": True}, "not": {}}, "s.not", id="a way around"),
]


@pytest.mark.parametrize(("schema", "said"), REFUSED)
def test_a_schema_is_refused_with_the_name_and_the_place(schema: dict[str, Any], said: str | None) -> None:
    def check() -> None:
        asyncio.run(Grammars().check(json_form(schema, "s")))

    if said is None:
        check()
        return
    with pytest.raises(InvalidRequest) as refused:
        check()
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    assert (refused.value.param or "").startswith("s")


def test_words_that_ask_for_nothing_are_left_out_and_annotations_change_nothing() -> None:
    items = {"nullable": False, "x-order": 1, "const": {"not": 1}}
    schema = {"type": "array", "uniqueItems": False, "title": "t", "items": items}
    assert checked_schema(schema, "s") == {"type": "array", "items": {"const": {"not": 1}}}
    assert checked_schema(True, "s") == {}
    with pytest.raises(InvalidRequest):
        checked_schema(False, "s")


@pytest.mark.parametrize(
    ("schema", "added"),
    [
        pytest.param({"type": "integer"}, {"minimum": -(2**53) + 1, "maximum": 2**53 - 1}, id="a whole number"),
        pytest.param({"type": "integer", "minimum": 3}, {"maximum": 2**53 - 1}, id="with a bound of its own"),
        pytest.param({"type": "number", "minimum": 1e16}, {}, id="a bound beyond"),
        pytest.param({"type": "number", "minimum": 0, "maximum": 0.25}, {"multipleOf": 1e-6}, id="decimals"),
        pytest.param({"type": "number", "minimum": 0, "maximum": 1e-5}, {"multipleOf": 1e-8}, id="of a small range"),
        pytest.param({"type": "number", "minimum": 0, "maximum": 1e-14}, {}, id="of a tiny one"),
        pytest.param({"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 3}, {}, id="decimals that are set"),
        pytest.param({"enum": [10**99], "type": "integer"}, {}, id="given values"),
        pytest.param({"properties": {"a": {}}}, {"additionalProperties": False}, id="an object that names properties"),
        pytest.param({"properties": {"a": {}}, "additionalProperties": True}, {}, id="one that wants others"),
        pytest.param({"properties": {"a": {}}, "required": ["b"]}, {}, id="one that requires another"),
        pytest.param({"properties": {"a": {}}, "required": ["a"], "minProperties": 2}, {}, id="one that needs more"),
        pytest.param({"type": "object"}, {}, id="one that names none"),
        pytest.param({"allOf": [{"properties": {"a": {}}}]}, {}, id="one that is merged"),
        pytest.param({"type": "string", "format": "email"}, {}, id="a format that ends"),
        pytest.param({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}]}, {}, id="one with branches beside"),
    ],
)
def test_what_has_no_end_is_given_one(schema: dict[str, Any], added: dict[str, Any]) -> None:
    assert narrowed(schema) == schema | added
    assert narrowed({"items": schema}) == {"items": schema | added}
    asyncio.run(Grammars().check(json_form(schema, "s")))


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        pytest.param([{"type": "integer"}, {"type": "number", "minimum": 2.0**60}], None, id="a large bound"),
        pytest.param([{"type": "number"}, {"const": 0.12345678}], "0.12345678", id="a value of many decimals"),
        pytest.param([{"type": "number"}, {"enum": [1e300]}], None, id="a huge value"),
        pytest.param([{"properties": {"a": {}}}, {"properties": {"b": {}}, "required": ["b"]}], None, id="objects"),
        pytest.param([{"type": "number", "multipleOf": 5}, {"type": "number"}], "10", id="a divisor"),
    ],
)
def test_what_is_merged_is_not_narrowed_to_nothing(parts: list[dict[str, Any]], value: str | None) -> None:
    for schema in ({"allOf": parts}, {"$defs": {"p": parts[0]}, "allOf": [{"$ref": "#/$defs/p"}, parts[1]]}):
        wide = asyncio.run(_error(json.dumps(schema)))
        assert asyncio.run(_error(json_form(schema, "s").grammar)) == wide
        if value is not None:
            assert wide is None


async def _error(grammar_or_schema: str) -> str | None:
    grammar = grammar_or_schema
    if '"grammars"' not in grammar:
        grammar = LLMatcher.grammar_from_json_schema(grammar)
    try:
        await Grammars().check(Form(grammar, "s"))
    except InvalidRequest as error:
        return error.message
    return None


def test_objects_that_are_put_together_and_share_nothing_are_one() -> None:
    parts = [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"const": 2}}, "additionalProperties": True},
    ]
    assert narrowed({"allOf": parts}) == {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for other in ({"minProperties": 1}, {"type": "object", "properties": {"a": {}}}, {"$ref": "#/$defs/x"}):
        assert "allOf" in narrowed({"allOf": [*parts, other]})
    assert "allOf" in narrowed({"allOf": parts, "properties": {"c": {}}})


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(80):
        schema = {"items": schema}
    with pytest.raises(InvalidRequest, match="nested"):
        checked_schema(schema, "s")


BAD = [
    pytest.param({"response_format": {"type": "xml"}}, "response_format.type", "json_schema", id="an unknown type"),
    pytest.param(
        {"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing", id="no schema"
    ),
    pytest.param(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}},
        "response_format.json_schema.schema.not",
        "not supported",
        id="a keyword",
    ),
    pytest.param(
        {"response_format": {"type": "text", "json_schema": {"name": "n"}}},
        "response_format.json_schema",
        "leave it out",
        id="a schema for text",
    ),
    pytest.param({"structured_outputs": {}}, "structured_outputs", "0 of", id="none of the forms"),
    pytest.param({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "2 of", id="two forms"),
    pytest.param({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", "unclosed", id="half a regex"),
    pytest.param(
        {"structured_outputs": {"regex": "(a)\\1"}}, "structured_outputs.regex", "backref", id="a back-reference"
    ),
    pytest.param({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "JSON", id="half a schema as text"),
    pytest.param(
        {"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar", '"x"', id="half a grammar"
    ),
    pytest.param({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "[]", id="no choice"),
    pytest.param(
        {"structured_outputs": {"whitespace_pattern": " "}},
        "structured_outputs.whitespace_pattern",
        "leave",
        id="an option that is not supported",
    ),
    pytest.param(
        {"structured_outputs": {"grammar": 'start: %json {"multipleOf": 9999991}'}},
        "structured_outputs.grammar",
        "%json",
        id="a schema by the back door",
    ),
    pytest.param(
        {"structured_outputs": {"regex": "a" * (LARGEST + 1)}}, "structured_outputs.regex", "over", id="too large"
    ),
    pytest.param(
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
        "contradicts",
        id="two ways at once",
    ),
    pytest.param({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos", "contradicts", id="no end"),
]


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize(("fields", "param", "said"), BAD)
def test_both_endpoints_refuse_what_cannot_be_held(
    engine: EngineProcess, fields: dict[str, Any], param: str, said: str, path: str
) -> None:
    prompt = {"messages": [{"role": "user", "content": "a"}]} if path.startswith("chat") else {"prompt": "a"}
    answer = engine.http.post(f"/v1/{path}", json={"model": NAME, "max_tokens": 3, **prompt, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert said in error["message"]
    assert "\n" not in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {}}}},
        {"structured_outputs": {"json": json.dumps({"type": "object"})}},
        {"structured_outputs": {"choice": ["a/b", 'say "hi"', "日本"]}},
        {"structured_outputs": {"grammar": 'start: "a" | "b"'}},
        {"structured_outputs": {"json_object": True, "regex": None}},
    ],
)
def test_what_can_be_held_is_accepted(engine: EngineProcess, fields: dict[str, Any]) -> None:
    answer = engine.chat(max_tokens=2, **fields)
    assert answer.status_code == 200, answer.text
