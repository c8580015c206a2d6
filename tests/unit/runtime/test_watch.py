"""When a step counts as stuck: timelines of what the ranks' processes do."""

from __future__ import annotations

import os

import pytest
from tidegate_engine.runtime.watch import Reading, Standstill, read_process


def looks(*moments: tuple[float, int | None, str, float]) -> list[str | None]:
    """What is said at each (time, step, state of rank 1, CPU seconds of rank 1); rank 0 sleeps all the time."""
    standstill = Standstill()
    return [
        standstill.look(now, step, [Reading(0, "S", 5.0), Reading(1, state, cpu)]) for now, step, state, cpu in moments
    ]


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param([(0, 1, "S", 1.0), (5, 2, "S", 1.0), (10, 3, "S", 1.0)], id="steps that follow each other"),
        pytest.param([(0, None, "S", 1.0), (900, None, "S", 1.0)], id="no step at all, for long"),
        pytest.param([(0, 1, "R", 1.0), (6, 1, "R", 1.2), (12, 1, "R", 1.4)], id="a step of minutes, slowly computed"),
        pytest.param([(0, 1, "S", 1.0), (6, 1, "D", 1.0), (12, 1, "S", 1.0)], id="a page that comes from a slow disk"),
        pytest.param([(0, None, "S", 1.0), (50, 1, "S", 1.0), (56, 1, "S", 1.0)], id="a step that began just now"),
    ],
)
def test_what_goes_on(moments: list[tuple[float, int | None, str, float]]) -> None:
    assert looks(*moments) == [None] * len(moments)


def test_a_rank_that_is_stopped() -> None:
    assert looks((0, 4, "R", 1.0), (3, 4, "T", 1.3), (9, 4, "T", 1.3), (10, 4, "T", 1.3)) == [
        *[None] * 3,
        "rank 1 of 2 is stopped in the middle of a step",
    ]


def test_ranks_that_all_wait_for_each_other() -> None:
    assert looks((0, 4, "S", 1.0), (7, 4, "S", 1.01)) == [
        None,
        "none of 2 ranks has computed for 7 s in the middle of a step",
    ]


def test_a_process_is_read_as_the_kernel_tells_it() -> None:
    reading = read_process(3, os.getpid())
    assert reading is not None
    assert (reading.rank, reading.state) == (3, "R")
    assert 0 < reading.cpu <= sum(os.times()[:2]) + 0.1
    assert read_process(3, 2**22 + 1) is None
