"""Reading the object: quantities, durations, sources, and what cannot be read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tidegate_operator.resource import (
    Percentiles,
    UnreadableSpec,
    format_duration,
    parse_duration,
    parse_quantity,
    parse_source,
    read_spec,
    read_status,
)

MODEL = {"source": "pvc://models/m.gguf"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("2s", 2), ("1.5s", 1.5), ("5m", 300), ("1h", 3600), ("0s", 0), (7, 7), (0.25, 0.25)],
)
def test_a_duration_is_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "5min", "-1s", "1h30m", ".5s", "5M", None, True, ["5s"]])
def test_what_is_no_duration_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="write one like 500ms, 30s or 5m"):
        parse_duration(text)


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_shown_duration_reads_back_to_three_digits(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=5.1e-3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.00425, "4.25ms"), (0.412, "412ms"), (0.9996, "1s"), (2.7, "2.7s"), (340, "340s"), (4321, "4320s")],
)
def test_a_duration_is_shown_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (2, Decimal(2)),
        ("200m", Decimal("0.2")),
        ("1.5Gi", Decimal("1.5") * 2**30),
        ("1k", Decimal(1000)),
        ("512Mi", Decimal(2**29)),
    ],
)
def test_a_quantity_is_a_number(text: object, number: Decimal) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["2 GB", "", "Mi", "-1", "1e400", None, True])
def test_what_is_no_quantity_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="write one like 2, 500m, 512Mi or 4Gi"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "claim", "path"),
    [
        ("pvc://models/a/b.gguf", "models", "a/b.gguf"),
        ("file:///opt/m", None, "/opt/m"),
    ],
)
def test_a_source_is_a_place(text: str, claim: str | None, path: str) -> None:
    assert parse_source(text) == (claim, path)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({}, "spec.model: Field required", id="no model"),
        pytest.param(
            {"model": MODEL, "engine": {"maxBatch": 1}},
            "spec.engine.maxBatch: Extra inputs are not permitted, got '1'",
            id="a field of a later version",
        ),
        pytest.param(
            {"model": MODEL, "drain": {"timeout": "soon"}},
            "spec.drain.timeout: 'soon' is not a duration; write one like 500ms, 30s or 5m",
            id="a duration in words",
        ),
        pytest.param(
            {"model": {"source": "hf://a/b"}},
            "spec.model.source: 'hf://a/b' says not where the model is; write pvc://CLAIM/PATH or file:///PATH",
            id="a source of a later version",
        ),
    ],
)
def test_a_spec_that_got_past_admission_is_refused_in_one_line(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(UnreadableSpec) as refused:
        read_spec(spec)
    assert str(refused.value) == says


def test_every_word_is_the_users_own_in_camel_case() -> None:
    spec = read_spec({"model": MODEL, "scaling": {"maxReplicas": 2, "targets": {"e2e": {"p99": "20s"}}}})
    assert spec.scaling is not None
    assert spec.scaling.targets.e2e is not None
    assert spec.scaling.targets.e2e.p99 == 20


def test_a_read_object_cannot_be_changed() -> None:
    spec = read_spec({"model": MODEL})
    with pytest.raises(ValidationError):
        spec.model.source = "file:///other"  # type: ignore[misc]


def test_a_status_of_a_later_operator_is_read_as_far_as_it_is_known() -> None:
    status = read_status({"replicas": 2, "weather": "fine", "latency": {"ttft": {"p99": "412ms"}}})
    assert status.replicas == 2
    assert status.latency is not None
    assert status.latency.ttft == Percentiles(p99=0.412)
    assert status.model_dump(by_alias=True, exclude_none=True)["latency"] == {"ttft": {"p99": "412ms"}}
