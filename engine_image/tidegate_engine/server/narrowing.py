"""Of all answers that fit a schema, those that a small model comes to the end of; whatever is left still fits.

Left free, a small model writes numbers and fractions of a second of hundreds of digits, and properties without end
into objects that do not forbid them. So numbers keep to what a double can tell apart, and an object that names its
properties has no others unless its schema says which. Nothing is narrowed where it could leave no answer at all: the
bounds and values of the whole schema set the limits of its numbers, and objects that may be merged into one stay open
(`allOf`, keywords beside `$ref` or `anyOf`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

_LARGEST = 2**53 - 1
"""The largest whole number up to which a double holds each."""
_PLACES = 6
_MORE_PLACES = 3
"""Beyond those of a bound, so that something lies between two of them."""
_MOST_PLACES = 9
"""llguidance reads 1e-11 as a number of too many digits."""
_BRANCHES = ("anyOf", "oneOf")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_PASSIVE = frozenset({"$schema", "$id", "$defs", "definitions"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SHORT_SECONDS = r"^[^.]*(\.[0-9]{1,6})?([Zz+-][0-9:]*)?$"
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Limits:
    """What may be narrowed here. `places` of decimals: None where numbers' decimals are left alone."""

    numbers: bool
    places: int | None
    close: bool
    close_definitions: bool


def narrowed(schema: Schema) -> Schema:
    """A schema whose every answer fits `schema`, which must have been checked."""
    if not any("/allOf" in str(one.get("$ref")) for one in _schemas(schema)):
        schema = _united(schema)
    everything = list(_schemas(schema))
    values = [float(value) for one in everything for value in _numbers(one)]
    numbers = all(abs(value) < _LARGEST for value in values)
    places = max([_PLACES, *(_places(value) + _MORE_PLACES for value in values)]) if numbers else 0
    decimals = numbers and places <= _MOST_PLACES and not any("multipleOf" in one for one in everything)
    merged = any("allOf" in one or ("$ref" in one and set(one) - _PASSIVE - {"$ref"}) for one in everything)
    return _narrowed(schema, _Limits(numbers, places if decimals else None, True, not merged))


def _inner(schema: Schema | bool, limits: _Limits) -> Schema | bool:
    return schema if isinstance(schema, bool) else _narrowed(schema, limits)


def _narrowed(schema: Schema, limits: _Limits) -> Schema:
    mixed = any(key in schema for key in _BRANCHES) and len(set(schema) - _PASSIVE) > 1
    if mixed or "allOf" in schema or "$ref" in schema:
        limits = replace(limits, close=False)
    found = dict(schema)
    for key, value in schema.items():
        if key in _NAMED:
            own = replace(limits, close=limits.close_definitions) if key in _PASSIVE else limits
            found[key] = {name: _inner(inner, own) for name, inner in value.items()}
        elif key in ("items", "prefixItems", "additionalProperties", "additionalItems", "allOf", *_BRANCHES):
            many = isinstance(value, list)
            found[key] = [_inner(inner, limits) for inner in value] if many else _inner(value, limits)
    if limits.close:
        found |= _closed(schema)
    if schema.get("format") in ("time", "date-time") and "pattern" not in schema:
        found["pattern"] = _SHORT_SECONDS
    return found | _bounded(schema, limits)


def _united(schema: Any) -> Any:
    """Schemas of nothing but `allOf` plain objects that share no property, as one object each, which may be closed."""
    if isinstance(schema, list):
        return [_united(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value if key in ("enum", "const") else _united(value) for key, value in schema.items()}
    parts = found.get("allOf")
    if not isinstance(parts, list) or set(found) - _PASSIVE - {"allOf", "type"} or not all(map(_is_plain, parts)):
        return found
    names = [name for part in parts for name in part.get("properties", {})]
    if len(names) != len(set(names)) or found.get("type", "object") != "object":
        return found
    del found["allOf"]
    properties = {name: inner for part in parts for name, inner in part.get("properties", {}).items()}
    required = list(dict.fromkeys(name for part in parts for name in part.get("required", ())))
    return found | {"type": "object", "properties": properties, "required": required}


def _is_plain(part: Any) -> bool:
    """An object of properties, open to others or without a word about them."""
    known = {"type", "properties", "required", "additionalProperties"}
    return (
        isinstance(part, dict)
        and part.get("type") == "object"
        and isinstance(part.get("properties", {}), dict)
        and part.get("additionalProperties", True) is True
        and not set(part) - known
    )


def _closed(schema: Schema) -> Schema:
    names = schema.get("properties")
    says_more = any(key in schema for key in ("additionalProperties", "patternProperties", "minProperties"))
    if names is None or says_more or not set(schema.get("required", ())) <= set(names):
        return {}
    return {"additionalProperties": False}


def _bounded(schema: Schema, limits: _Limits) -> Schema:
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not limits.numbers or not {"integer", "number"} & set(kinds) or "enum" in schema or "const" in schema:
        return {}
    found: Schema = {}
    if "minimum" not in schema and "exclusiveMinimum" not in schema:
        found["minimum"] = -_LARGEST
    if "maximum" not in schema and "exclusiveMaximum" not in schema:
        found["maximum"] = _LARGEST
    if "number" in kinds and limits.places is not None:
        found["multipleOf"] = float(f"1e-{limits.places}")
    return found


def _places(number: float) -> int:
    return max(0, -int(Decimal(str(number)).normalize().as_tuple().exponent))


def _numbers(schema: Schema) -> Iterator[float]:
    """The bounds and given values of one schema, as far as they are numbers."""
    given = [schema.get(key) for key in _BOUNDS] + [schema.get("const"), *schema.get("enum", ())]
    for value in given:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


def _schemas(schema: Any) -> Iterator[Schema]:
    """The schema and every one inside it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key in _NAMED:
            for inner in value.values():
                yield from _schemas(inner)
        elif key not in ("enum", "const"):
            for inner in value if isinstance(value, list) else [value]:
                yield from _schemas(inner)
