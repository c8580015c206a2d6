"""What the operator's yardstick reads, and what its stand-in answers."""

from __future__ import annotations

import pytest
from tidegate_bench_operator.api_server import Objects
from tidegate_bench_operator.histogram import buckets_between, quantile
from tidegate_bench_operator.kinds import service
from tidegate_bench_operator.pod_load import PodLoad, Pool
from tidegate_operator.observed import read_load
from tidegate_operator.resource import read_spec


def bucket(le: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return ("delay_bucket", (("le", le),))


def test_only_what_was_observed_in_between_counts() -> None:
    before = {bucket("0.1"): 5.0, bucket("1.0"): 5.0, bucket("+Inf"): 5.0}
    after = {bucket("0.1"): 5.0, bucket("1.0"): 105.0, bucket("+Inf"): 105.0, ("other_bucket", (("le", "1"),)): 9.0}
    between = buckets_between(before, after, "delay")
    assert between == [(0.1, 0.0), (1.0, 100.0), (float("inf"), 100.0)]
    assert quantile(between, 0.5) == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("buckets", "value"),
    [
        pytest.param([], None, id="nothing was asked for"),
        pytest.param([(1.0, 0.0), (float("inf"), 0.0)], None, id="nothing was observed"),
        pytest.param([(1.0, 10.0), (float("inf"), 10.0)], 0.99, id="within the first bucket"),
        pytest.param([(1.0, 1.0), (float("inf"), 10.0)], 1.0, id="beyond the last bound: at least that"),
    ],
)
def test_a_p99_of_buckets(buckets: list[tuple[float, float]], value: float | None) -> None:
    assert quantile(buckets, 0.99) == (None if value is None else pytest.approx(value))


def test_the_stand_ins_pods_answer_as_an_engine_that_goes_on_working() -> None:
    pod = PodLoad(Pool(1), "boot-1", 0.0)
    first, second = read_load(body := pod.answer(1.0)), read_load(pod.answer(11.0))
    assert 2048 <= len(body) <= 6144
    assert second.uptime_s - first.uptime_s == pytest.approx(10.0)
    grown = second.counters.received - first.counters.received
    assert 14 <= grown <= 16
    assert second.sketches.ttft.since(first.sketches.ttft).count == grown


def test_the_stand_ins_services_are_such_as_the_operator_takes() -> None:
    spec = read_spec(service("svc-0001", 4)["spec"])
    assert spec.scaling is not None
    assert spec.scaling.min_replicas == 4


def test_a_watch_that_begins_after_a_list_misses_nothing() -> None:
    objects = Objects()
    objects.put("pods", {"metadata": {"namespace": "bench", "name": "a"}})
    listed = objects.version
    objects.put("pods", {"metadata": {"namespace": "bench", "name": "b"}})
    objects.remove("pods", "bench", "a")
    assert [version for version, _ in objects.told["pods"] if version > listed] == [2, 3]
    assert objects.apply(("pods", "bench", "a"), {"metadata": {}}, status=True) is None
