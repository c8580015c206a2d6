"""Mixed traffic and starts: the same for both, and what is said of them."""

from __future__ import annotations

import json

import pytest
from tidegate_bench.mixed import measure_mixed, quantile
from tidegate_bench.plan import Traffic, mixed_traffic
from tidegate_bench.start_time import measure_starts, parts_of
from tidegate_bench.workers.continuous_batching import Course


def test_traffic_is_the_same_each_time_and_within_its_bounds() -> None:
    traffic = mixed_traffic(200, 1000, 2.0)
    assert traffic == mixed_traffic(200, 1000, 2.0)
    assert all(50 <= len(prompt) <= 500 and 10 <= wanted <= 200 for prompt, wanted in traffic.requests)
    assert all(0 <= token < 1000 for prompt, _ in traffic.requests for token in prompt)
    assert traffic.arrivals == sorted(traffic.arrivals)
    assert 200 / traffic.arrivals[-1] == pytest.approx(2.0, rel=0.2)


def test_arrivals_change_no_request() -> None:
    assert mixed_traffic(50, 1000, None).requests == mixed_traffic(50, 1000, 3.0).requests
    assert set(mixed_traffic(50, 1000, None).arrivals) == {0.0}


def test_both_get_the_same_arrivals_at_seventy_per_cent_of_what_the_peer_can_do() -> None:
    asked: list[tuple[str, Traffic]] = []

    def engine(name: str, wall: float, traffic: Traffic) -> Course:
        asked.append((name, traffic))
        return Course([0.1] * 10, [0.2] * 10, wall)

    found = measure_mixed(10, 1000, lambda t: engine("ours", 2.0, t), lambda t: engine("peer", 5.0, t))
    assert found.rate == pytest.approx(0.7 * 10 / 5.0)
    assert [name for name, _ in asked] == ["peer", "ours", "ours", "peer"]
    assert asked[0][1] == asked[1][1]
    assert asked[2][1] == asked[3][1] == mixed_traffic(10, 1000, found.rate)


@pytest.mark.parametrize(
    ("share", "expected"),
    [pytest.param(0.99, 198, id="p99 of 200 leaves two above"), (0.5, 100), (1.0, 200), (0.0, 1)],
)
def test_a_quantile_is_a_value_that_was_measured(share: float, expected: int) -> None:
    assert quantile(list(range(200, 0, -1)), share) == expected


def test_the_parts_of_a_start_are_read_from_the_engines_log() -> None:
    ready = {"event": "ready", "parts": {"import": 2.0, "weights": 0.5}}
    said = ["a library's warning", json.dumps({"event": "listening"}), json.dumps(ready)]
    assert parts_of(said) == {"import": 2.0, "weights": 0.5}
    assert parts_of(["nothing of the kind"]) == {}


def test_the_first_start_only_warms_the_files_and_counts_for_nothing() -> None:
    seconds = iter([99.0, 3.0, 4.0, 5.0])
    starts = measure_starts(3, lambda: (next(seconds), []), lambda: None)
    assert starts.engine == 4.0
