"""Random JSON schemas, the same for the same seed: what people write, and now and then what nobody supports."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
UNSUPPORTED: tuple[tuple[str, Any], ...] = (
    ("uniqueItems", True), ("not", {"type": "null"}), ("contains", {"type": "integer"}), ("if", {"type": "string"}),
    ("dependentRequired", {"a": ["b"]}), ("propertyNames", {"maxLength": 3}), ("unevaluatedProperties", False),
    ("$dynamicRef", "#x"),
)  # fmt: skip
_NAMES = ("name", "age", "tags", "address", "id", "größe", "is_active", "e-mail", "notes", "x y", "price", "日付")
_WORDS = ("red", "green", "", "a b", 'say "hi"', "naïve", "línea\n", "\\", "日本")
_PATTERNS = ("^[a-z]+$", "^\\d{3}-\\d{4}$", "ab", "^(cat|dog)s?$", "^[^@ ]{1,8}@[a-z]{2,5}\\.com$", "[0-9]$", "^é?x*$")
_FORMATS = ("date", "time", "date-time", "email", "ipv4", "uuid")


def random_schemas(count: int, seed: int = 5, unsupported: float = 0.06) -> Iterator[tuple[Schema, str | None]]:
    """Schemas, each with the keyword that it must be refused for, if there is one."""
    source = random.Random(seed)
    for _ in range(count):
        schema = _root(source)
        keyword = None
        if source.random() < unsupported:
            keyword, value = source.choice(UNSUPPORTED)
            _anywhere(source, schema)[keyword] = value
        yield schema, keyword


def _root(source: random.Random) -> Schema:
    if source.random() < 0.8:
        schema = _object(source, 3)
    else:
        schema = _any(source, 3)
    if source.random() < 0.15:
        schema["$defs"] = {"part": _any(source, 1), "tree": _tree(source)}
        _anywhere_an_object(schema)["linked"] = {"$ref": source.choice(("#/$defs/part", "#/$defs/tree"))}
    return schema


def _any(source: random.Random, depth: int) -> Schema:
    kinds = [_string, _number, _integer, _enum, _const, _simple]
    if depth > 0:
        kinds += [_object, _array, _any_of, _all_of, _one_of, _object, _array]
    return source.choice(kinds)(source, depth)


def _object(source: random.Random, depth: int) -> Schema:
    names = source.sample(_NAMES, source.randint(0, 5))
    schema: Schema = {"type": "object", "properties": {name: _any(source, depth - 1) for name in names}}
    schema["required"] = [name for name in names if source.random() < 0.7]
    further = source.random()
    if further < 0.6:
        schema["additionalProperties"] = False
    elif further < 0.75:
        schema["additionalProperties"] = _any(source, 0)
    if source.random() < 0.1:
        schema["patternProperties"] = {"^x-": {"type": "integer"}}
    if source.random() < 0.3:
        schema |= {"title": "T", "description": "what it is", "default": {}, "x-note": 1}
    return schema


def _array(source: random.Random, depth: int) -> Schema:
    schema: Schema = {"type": "array", "items": _any(source, depth - 1)}
    if source.random() < 0.7:
        schema["maxItems"] = source.randint(1, 4)
    if source.random() < 0.4:
        schema["minItems"] = source.randint(0, min(2, schema.get("maxItems", 2)))
    if source.random() < 0.15:
        schema["prefixItems"] = [_any(source, 0), _any(source, 0)]
    return schema


def _string(source: random.Random, _: int) -> Schema:
    schema: Schema = {"type": "string"}
    how = source.random()
    if how < 0.3:
        schema["pattern"] = source.choice(_PATTERNS)
    elif how < 0.45:
        schema["format"] = source.choice(_FORMATS)
    elif how < 0.9:
        schema["maxLength"] = source.randint(1, 20)
        if source.random() < 0.5:
            schema["minLength"] = source.randint(0, schema["maxLength"])
    return schema


def _number(source: random.Random, _: int) -> Schema:
    least = round(source.uniform(-1000, 1000), source.randint(0, 3))
    schema: Schema = {"type": "number"}
    if source.random() < 0.7:
        schema[source.choice(("minimum", "exclusiveMinimum"))] = least
        schema[source.choice(("maximum", "exclusiveMaximum"))] = least + round(source.uniform(1, 500), 2)
    return schema


def _integer(source: random.Random, _: int) -> Schema:
    least = source.randint(-100, 100)
    schema: Schema = {"type": "integer"}
    if source.random() < 0.7:
        schema |= {"minimum": least, "maximum": least + source.randint(10, 5000)}
    if source.random() < 0.15:
        schema["multipleOf"] = source.choice((2, 5, 10))
    return schema


def _enum(source: random.Random, _: int) -> Schema:
    values: list[Any] = [*source.sample(_WORDS, 3), source.randint(-5, 5), None, True, 1.5, [1, "a"], {"k": None}]
    return {"enum": source.sample(values, source.randint(1, 5))}


def _const(source: random.Random, _: int) -> Schema:
    return {"const": source.choice([*_WORDS, 7, -0.25, False, {"a": [1, {"b": "c"}]}])}


def _simple(source: random.Random, _: int) -> Schema:
    return source.choice(({"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]}))


def _any_of(source: random.Random, depth: int) -> Schema:
    return {"anyOf": [_any(source, depth - 1) for _ in range(source.randint(2, 3))]}


def _all_of(source: random.Random, depth: int) -> Schema:
    own = _object(source, depth)
    own.pop("patternProperties", None)
    own["additionalProperties"] = True
    return {"allOf": [own, {"type": "object", "properties": {"both": {"type": "boolean"}}, "required": ["both"]}]}


def _one_of(source: random.Random, depth: int) -> Schema:
    def branch(kind: str) -> Schema:
        schema = _object(source, depth - 1)
        schema["properties"] = {"kind": {"const": kind}} | schema["properties"]
        schema["required"] = ["kind", *schema["required"]]
        return schema

    return {"oneOf": [branch("a"), branch("b")]}


def _tree(source: random.Random) -> Schema:
    leaf = _any(source, 0)
    children = {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}
    return {"type": "object", "properties": {"leaf": leaf, "children": children}, "required": ["leaf"]}


def _anywhere(source: random.Random, schema: Schema) -> Schema:
    """One of the schemas inside."""
    found = [schema]
    for one in found:
        found += one.get("properties", {}).values() if isinstance(one.get("properties"), dict) else []
        found += [one["items"]] if isinstance(one.get("items"), dict) else []
        found += one.get("anyOf", [])
    return source.choice(found)


def _anywhere_an_object(schema: Schema) -> Schema:
    if schema.get("type") != "object":
        schema.clear()
        schema |= {"type": "object", "$defs": {"part": {"type": "string"}, "tree": {"type": "null"}}, "properties": {}}
    properties: Schema = schema["properties"]
    return properties
