"""What the live table shows: known numbers as they are, unknown ones never as zero."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from tidegate_lab.cluster import Name
from tidegate_lab.watch.look import Look, condition, look
from tidegate_lab.watch.recent import Recent
from tidegate_lab.watch.table import Table, row
from tidegate_operator.observed_load import LoadReport
from tidegate_operator.observed_sketch import Sketch


def report(boot: str = "a", running: int = 0, waiting: int = 0, *ttft: float) -> LoadReport:
    return LoadReport.model_validate(
        {
            "version": 1, "boot": boot, "state": "ready", "uptime_s": 1.0, "slots": 4, "running": running,
            "waiting": waiting, "counters": {}, "sketches": {"ttft": Sketch.of(ttft)},
        }
    )  # fmt: skip


def service(**status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 2}, "status": status}


def test_queue_and_running_are_summed_over_pods() -> None:
    seen = look(0.0, service(), [report(running=2, waiting=1), report(running=3, waiting=5)], 0.5)
    assert (seen.waiting, seen.running) == (6, 5)


def test_where_one_pod_cannot_be_read_the_sum_is_not_known() -> None:
    seen = look(0.0, service(), [report(waiting=1), None], None)
    assert (seen.waiting, seen.running) == (None, None)
    assert row(seen).split()[3] == "?"


def test_a_service_without_status_shows_nothing_known() -> None:
    seen = look(61.0, {"metadata": {"generation": 1}}, [], None)
    assert (seen.desired, seen.ready) == (None, None)
    assert row(seen).split()[:3] == ["1:01", "?", "?"]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([], "Unknown", id="not reported yet is unknown"),
        pytest.param([{"type": "Ready", "status": "True", "observedGeneration": 2}], "True", id="of this generation"),
        pytest.param(
            [{"type": "Ready", "status": "True", "observedGeneration": 1}],
            "Unknown",
            id="of the generation before it says nothing about this one",
        ),
    ],
)
def test_a_condition_counts_only_for_the_generation_it_is_about(conditions: list[Any], expected: str) -> None:
    assert condition(service(conditions=conditions, observedGeneration=2), "Ready").status == expected


def test_recent_quantiles_are_of_the_window_only() -> None:
    recent = Recent(window_s=30)
    old = Sketch.of([9.0] * 100)
    assert recent.add(0, {"a": old}).count == 0  # what was there before the watching began says nothing of now
    assert recent.add(10, {"a": Sketch.merged([old, Sketch.of([1.0])])}).count == 1
    assert recent.add(20, {"a": Sketch.merged([old, Sketch.of([1.0, 2.0])])}).count == 2
    assert recent.add(45, {"a": Sketch.merged([old, Sketch.of([1.0, 2.0])])}).count == 1
    assert recent.add(80, {"a": Sketch.merged([old, Sketch.of([1.0, 2.0])])}).count == 0


def test_a_new_pod_counts_from_its_start_and_a_lost_one_keeps_what_it_said() -> None:
    recent = Recent(window_s=30)
    recent.add(0, {"a": Sketch.of([1.0])})
    assert recent.add(5, {"a": Sketch.of([1.0, 1.0]), "b": Sketch.of([2.0, 2.0])}).count == 3
    assert recent.add(6, {"b": Sketch.of([2.0, 2.0])}).count == 3


def at(seconds: float, desired: int = 1, news: tuple[str, ...] = ()) -> Look:
    return Look(
        at_s=seconds, desired=desired, ready=1, ready_condition="", waiting=0, running=0, ttft_p99_s=None,
        reason="Steady", news=news,
    )  # fmt: skip


def test_the_table_prints_changes_at_once_and_the_rest_every_five_seconds() -> None:
    out = io.StringIO()
    table = Table(Console(file=out, width=120))
    for second in range(7):
        table.show(at(second))
    table.show(at(7, desired=3))
    table.show(at(8, desired=3, news=("QueueDepth: 9 wait",)))
    assert out.getvalue().splitlines()[-1].endswith("QueueDepth: 9 wait")
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["time", "0:00", "0:05", "0:07", "0:08"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("demo/smollm2", ("demo", "smollm2")), ("smollm2", ("default", "smollm2"))],
    ids=["namespace and name", "a name alone is in the namespace default"],
)
def test_names_are_read_as_kubectl_writes_them(text: str, expected: tuple[str, str]) -> None:
    assert Name.parse(text) == expected
