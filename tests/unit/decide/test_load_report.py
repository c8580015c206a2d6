"""Reading `GET /load`, and the sketches in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidegate_operator.observed import Sketch, UnreadableLoad, read_load
from tidegate_operator.observed_load import MAX_LOAD_BYTES


def body(**changed: Any) -> bytes:
    sketch = {"gamma": 1.0202020202, "zero": 0, "bins": {"-35": 2, "7": 1}}
    whole: dict[str, Any] = {
        "version": 1,
        "boot": "9f2c",
        "state": "ready",
        "uptime_s": 12.5,
        "slots": 32,
        "running": 3,
        "waiting": 1,
        "oldest_waiting_s": 0.4,
        "oldest_unfinished_s": 2.0,
        "kv_blocks": {"total": 2048, "used": 96},
        "counters": {"received": 10, "finished": 6, "rejected": 0, "prompt_tokens": 900, "steps": 420},
        "last_step_age_s": 0.02,
        "sketches": {"ttft": sketch, "tpot": sketch, "e2e": sketch},
        "waiting_ages": sketch,
        "running_tpot": sketch,
    }
    return json.dumps(whole | changed).encode()


def test_a_report_is_read_whole() -> None:
    load = read_load(body())
    assert (load.running, load.waiting, load.slots, load.counters.received) == (3, 1, 32, 10)
    assert load.sketches.ttft == Sketch(0, ((-35, 2), (7, 1)))


def test_fields_of_a_newer_engine_are_left_aside() -> None:
    assert read_load(body(something_new={"a": 1})).running == 3


def test_a_pod_without_a_step_has_no_age_of_one() -> None:
    assert read_load(body(last_step_age_s=None)).last_step_age_s is None


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        pytest.param(body(uptime_s=float("nan")), "uptime_s", id="a NaN"),
        pytest.param(body(uptime_s=float("inf")), "uptime_s", id="an infinity"),
        pytest.param(body(oldest_waiting_s=-1), "oldest_waiting_s", id="a negative age"),
        pytest.param(body(running=-1), "running", id="a negative count"),
        pytest.param(body(running=10**30), "running", id="a count beyond belief"),
        pytest.param(body(running="3"), "running", id="a number as text"),
        pytest.param(body(running=True), "running", id="a truth for a number"),
        pytest.param(body(version=2), "version", id="another version"),
        pytest.param(body(state="fine"), "state", id="an unknown state"),
        pytest.param(body(boot=""), "boot", id="no boot"),
        pytest.param(body(waiting_ages={"gamma": 2, "zero": 0, "bins": {}}), "gamma", id="another mapping"),
        pytest.param(body(waiting_ages={"gamma": 1.0202020202, "zero": 0, "bins": {"x": 1}}), "bins", id="a bin x"),
        pytest.param(body(waiting_ages={"gamma": 1.0202020202, "zero": 0, "bins": {"9999": 1}}), "bins", id="far bin"),
        pytest.param(body(waiting_ages={"gamma": 1.0202020202, "zero": 0, "bins": {"1": -1}}), "bins", id="negative"),
        pytest.param(b"", "body", id="nothing"),
        pytest.param(b"<html>502</html>", "body", id="a proxy's page"),
        pytest.param(b"[]", "body", id="a list"),
        pytest.param(b"[" * 20_000, "body", id="deep nesting"),
        pytest.param(b"\xff\xfe", "body", id="no text"),
        pytest.param(b" " * (MAX_LOAD_BYTES + 1), str(MAX_LOAD_BYTES), id="too long an answer"),
    ],
)
def test_garbage_is_unreadable_and_says_where(answer: bytes, named: str) -> None:
    with pytest.raises(UnreadableLoad, match=named) as caught:
        read_load(answer)
    assert "\n" not in str(caught.value)


def test_quantiles_are_within_one_percent() -> None:
    values = [0.001 * k for k in range(1, 1001)]
    sketch = Sketch.of(values)
    for q in (0.01, 0.5, 0.95, 0.99, 1.0):
        estimate = sketch.quantile(q)
        assert estimate is not None
        assert estimate == pytest.approx(q, rel=0.011)


def test_the_p99_of_merged_replicas_is_not_the_mean_of_their_p99s() -> None:
    slow, fast = Sketch.of([7.0] * 2 + [0.1] * 98), Sketch.of([0.1] * 300)
    assert Sketch.merged((slow, fast)).quantile(0.99) == pytest.approx(0.1, rel=0.01)
    assert slow.quantile(0.99) == pytest.approx(7.0, rel=0.01)


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        pytest.param([1.0], [1.0, 2.0], [2.0], id="what came since is left"),
        pytest.param([1.0, 2.0], [1.0, 2.0], [], id="nothing came"),
        pytest.param([1.0, 1.0], [1.0], [1.0], id="a count that fell began again"),
        pytest.param([3.0], [1.0], [1.0], id="a bin that is gone began again"),
        pytest.param([], [0.0, 1.0], [0.0, 1.0], id="from nothing"),
    ],
)
def test_a_difference_is_never_negative(earlier: list[float], later: list[float], expected: list[float]) -> None:
    assert Sketch.of(later).since(Sketch.of(earlier)) == Sketch.of(expected)


def test_an_empty_sketch_has_no_quantile_rather_than_zero() -> None:
    assert Sketch().quantile(0.99) is None
    assert Sketch().mean() is None
