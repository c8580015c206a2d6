"""JSON Schema as far as answers can be held to it. What cannot be held is refused by its name, and where it stands.

llguidance refuses most of it too, but not where; and it passes over words that it does not know, such as a misspelt
`minLenght`. It also takes minutes for a large `multipleOf`, whose automaton has a state for every remainder.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from tidegate_engine.server.errors import InvalidRequest

_ONE = frozenset({"additionalProperties", "additionalItems", "items"})
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_VALUES = frozenset(
    {
        "type", "enum", "const", "$ref", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "minProperties",
        "maxProperties",
    }
)  # fmt: skip
_ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples", "example",
        "deprecated", "readOnly", "writeOnly", "contentMediaType", "contentEncoding", "discriminator",
    }
)  # fmt: skip
_NOTHING: Mapping[str, Any] = {
    "uniqueItems": False, "nullable": False, "minContains": 0, "dependentRequired": {}, "dependentSchemas": {},
    "not": False, "exclusiveMinimum": False, "exclusiveMaximum": False,
}  # fmt: skip
"""Values with which a keyword asks for nothing."""
_REMEDIES = {
    "nullable": 'add "null" to type',
    "exclusiveMinimum": "give a number, as later drafts have it",
    "exclusiveMaximum": "give a number, as later drafts have it",
}
_KNOWN = _ONE | _LIST | _NAMED | _VALUES | _ANNOTATIONS
_DEEPEST = 64
_MOST_REMAINDERS = 10_000
"""States of the automaton; ten thousand take 0.1 s to compile, and a hundred thousand 3 s."""


def checked_schema(schema: dict[str, Any] | bool, param: str) -> dict[str, Any]:
    """The schema without what asks for nothing; raises InvalidRequest naming the keyword and its place."""
    if schema is False:
        raise InvalidRequest(f"{param}: false allows no answer at all; give a schema", param=param)
    kept = {} if schema is True else _checked(schema, param, 0)
    divisors = list(_divisors(kept))
    # Several may meet in one number, by allOf or $ref: only their common multiple is sure to be enough.
    if math.lcm(*divisors) > _MOST_REMAINDERS:
        raise InvalidRequest(
            f"{param}: multipleOf needs too large a grammar here (the common multiple of all is over "
            f"{_MOST_REMAINDERS}, in units of the smallest decimal); use rounder ones",
            param=param,
        )
    return kept


def _checked(schema: Any, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict):
        _refuse(path, "is no schema", "give an object")
    if depth > _DEEPEST:
        _refuse(path, f"is nested deeper than {_DEEPEST}", "use $ref")
    found: dict[str, Any] = {}
    for key, value in schema.items():
        at = f"{path}.{key}"
        if key in _NOTHING and value == _NOTHING[key] and type(value) is type(_NOTHING[key]):
            continue
        if key.startswith("x-"):
            continue
        if key not in _KNOWN or (key in _REMEDIES and isinstance(value, bool)):
            _refuse(at, "is not supported", _REMEDIES.get(key) or _remedy(key))
        elif key in _NAMED:
            if not isinstance(value, dict):
                _refuse(at, "is not accepted", "give an object of schemas")
            found[key] = {name: _inner(inner, f"{at}.{name}", depth) for name, inner in value.items()}
        elif key in _LIST and isinstance(value, list):
            found[key] = [_inner(inner, f"{at}[{index}]", depth) for index, inner in enumerate(value)]
        elif key in _ONE:
            found[key] = _inner(value, at, depth)
        elif key not in _ANNOTATIONS or key in ("$id", "$schema"):
            found[key] = value
    return found


def _inner(schema: Any, path: str, depth: int) -> dict[str, Any] | bool:
    return schema if isinstance(schema, bool) else _checked(schema, path, depth + 1)


def _divisors(schema: Any) -> Iterator[int]:
    """Every multipleOf as a whole number of the smallest decimal of all."""
    values = [Decimal(str(value)) for value in _multiples(schema) if value]
    places = min([0, *(int(value.as_tuple().exponent) for value in values)])
    for value in values:
        yield abs(int(value.scaleb(-places)))


def _multiples(schema: Any) -> Iterator[float]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "multipleOf" and isinstance(value, int | float) and math.isfinite(value):
                yield value
            elif key not in ("enum", "const"):
                yield from _multiples(value)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _multiples(inner)


def _remedy(key: str) -> str:
    close = difflib.get_close_matches(key, sorted(_KNOWN), n=1)
    return f"did you mean {close[0]}?" if close else "leave it out"


def _refuse(at: str, what: str, remedy: str) -> NoReturn:
    raise InvalidRequest(f"{at}: {what} in a schema here; {remedy}", param=at)
