"""The CRD and the operator's models say the same: fields, types, what is required, defaults, enumerations."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined
from tidegate_operator.resource import InferenceServiceSpec, InferenceServiceStatus
from tidegate_operator.resource.quantity import BytesOrAuto, Duration, Quantity, Shown

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "crds/inferenceservice.yaml"
VERSION = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
OBJECT = VERSION["schema"]["openAPIV3Schema"]["properties"]
INT_OR_STRING = "x-kubernetes-int-or-string"
TEXTS: tuple[Any, ...] = (str, Duration, Shown, BytesOrAuto)
SCALARS = {int: "integer", float: "number", bool: "boolean"}
PRESENCE_MATTERS = {"spec.scaling.behavior"}
"""Parents with a default in the model and none in the schema: being there says something to a rule."""

Json = dict[str, Any]


def differences(path: str, schema: Json, hint: Any) -> Iterator[str]:
    """Every place where the schema and the type disagree."""
    hint = hint if hint == BytesOrAuto else without_none(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield from fields(path, schema, hint)
    elif hint == Quantity:
        yield from same(path, "quantity", schema.get(INT_OR_STRING) or schema.get("type") == "string", True)
    elif hint in TEXTS:
        yield from same(path, "type", schema.get("type"), "string")
    elif hint in SCALARS:
        yield from same(path, "type", schema.get("type"), SCALARS[hint])
    elif origin is Literal:
        yield from same(path, "enum", sorted(schema.get("enum", ())), sorted(arguments))
    elif origin is tuple:
        yield from same(path, "type", schema.get("type"), "array")
        yield from differences(f"{path}[]", schema["items"], arguments[0])
    elif origin is dict and arguments[1] is Any:
        yield from same(path, "unknown fields", schema.get("x-kubernetes-preserve-unknown-fields"), True)
    elif origin is dict:
        yield from same(path, "type", schema.get("type"), "object")
        yield from differences(f"{path}.*", schema["additionalProperties"], arguments[1])
    elif set(arguments) == {int, str}:
        yield from same(path, INT_OR_STRING, schema.get(INT_OR_STRING), True)
    else:
        yield f"{path}: this test does not know the type {hint}"


def fields(path: str, schema: Json, model: type[BaseModel]) -> Iterator[str]:
    hints = get_type_hints(model, include_extras=True)
    known = {field.alias: (name, field) for name, field in model.model_fields.items()}
    properties = schema.get("properties", {})
    yield from same(path, "fields", sorted(properties), sorted(str(alias) for alias in known))
    required = sorted(str(alias) for alias, (_, field) in known.items() if field.is_required())
    yield from same(path, "required", sorted(schema.get("required", ())), required)
    for alias in properties.keys() & known.keys():
        name, field = known[alias]
        place = f"{path}.{alias}"
        yield from differences(place, properties[alias], hints[name])
        yield from defaults(place, properties[alias], hints[name], field.get_default(call_default_factory=True))


def defaults(path: str, schema: Json, hint: Any, default: Any) -> Iterator[str]:
    if "default" in schema:
        read = TypeAdapter(hint).validate_python(schema["default"])
        yield from same(path, "default", read, default)
    elif default not in (PydanticUndefined, None, (), {}, 0.0) and path not in PRESENCE_MATTERS:
        yield f"{path}: the model's default {default!r} is not in the schema"


def same(path: str, what: str, schema: Any, model: Any) -> Iterator[str]:
    if schema != model:
        yield f"{path}: {what}: the schema says {schema!r}, the model {model!r}"


def without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
        rest = [part for part in get_args(hint) if part is not type(None)]
        return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 - made at run time
    return hint


def nodes(path: str, schema: Json) -> Iterator[tuple[str, Json]]:
    """The schema and every one inside."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(f"{path}.{name}", inner)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from nodes(path + mark, schema[key])


@pytest.mark.parametrize(("part", "model"), [("spec", InferenceServiceSpec), ("status", InferenceServiceStatus)])
def test_the_schema_and_the_model_agree(part: str, model: type[BaseModel]) -> None:
    assert not list(differences(part, OBJECT[part], model))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(lambda s: s["properties"].pop("paused"), "spec: fields", id="a field that is missing"),
        pytest.param(lambda s: s["properties"]["drain"]["properties"]["timeout"].update(default="6m"),
                     "spec.drain.timeout: default", id="another default"),
        pytest.param(lambda s: s["properties"]["engine"]["properties"]["dtype"]["enum"].pop(),
                     "spec.engine.dtype: enum", id="another enumeration"),
        pytest.param(lambda s: s["properties"]["engine"].pop("default"), "spec.engine: the model's default",
                     id="a parent without a default"),
        pytest.param(lambda s: s.pop("required"), "spec: required", id="nothing required"),
        pytest.param(lambda s: s["properties"]["replicas"].update(type="string"), "spec.replicas: type",
                     id="another type"),
    ],
)  # fmt: skip
def test_the_comparison_sees(change: Any, complaint: str) -> None:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    change(schema)
    assert any(found.startswith(complaint) for found in differences("spec", schema, InferenceServiceSpec))


def test_kubectl_can_apply_it() -> None:
    assert len(CRD.read_bytes()) < 256 * 1024, "kubectl apply keeps a copy in an annotation"


def test_every_field_is_described() -> None:
    silent = [
        path
        for part in ("spec", "status")
        for path, schema in nodes(part, OBJECT[part])
        if "description" not in schema and not path.endswith(("[]", ".*"))
    ]
    assert not silent


def test_everything_in_spec_is_bounded() -> None:
    unbounded = [
        path
        for path, schema in nodes("spec", OBJECT["spec"])
        if (schema.get("type") == "string" and not {"maxLength", "enum"} & schema.keys())
        or (schema.get("type") == "array" and "maxItems" not in schema)
        or ("additionalProperties" in schema and "maxProperties" not in schema)
        or (schema.get("type") in ("integer", "number") and "minimum" not in schema)
    ]
    assert not unbounded


def test_the_scale_subresource_has_a_selector() -> None:
    assert VERSION["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


@pytest.mark.parametrize("column", ["Ready", "Replicas", "Queue", "P99 TTFT", "Age"])
def test_kubectl_get_shows(column: str) -> None:
    (found,) = [c for c in VERSION["additionalPrinterColumns"] if c["name"] == column]
    assert found.get("priority", 0) == 0
