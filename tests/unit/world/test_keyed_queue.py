"""Timelines of the operator's queue."""

from __future__ import annotations

import asyncio

import pytest
from tidegate_operator.observed import ServiceKey
from tidegate_operator.queue import Backlog, Due, KeyedQueue

A, B = ServiceKey("ns", "a"), ServiceKey("ns", "b")


def test_a_burst_of_events_is_one_look() -> None:
    backlog = Backlog(debounce=1)
    for at in (0.0, 0.1, 0.2):
        backlog.add(A, at)
    assert len(backlog) == 1
    assert backlog.next(0.4) == Due(A, pytest.approx(0.6))


def test_a_later_wish_does_not_postpone_an_earlier_one() -> None:
    backlog = Backlog(debounce=0)
    backlog.add(A, 0, after=1)
    backlog.add(A, 0, after=30)
    assert backlog.next(0) == Due(A, 1)


def test_a_name_is_not_handed_out_twice_at_once_but_a_wish_made_meanwhile_is_kept() -> None:
    backlog = Backlog(debounce=0)
    backlog.add(A, 0)
    backlog.start(A)
    backlog.add(A, 1)
    assert backlog.next(2) is None
    backlog.succeed(A)
    assert backlog.next(2) == Due(A, 0)


def test_another_name_goes_on_while_one_is_worked_on() -> None:
    backlog = Backlog(debounce=0)
    backlog.add(A, 0)
    backlog.start(A)
    backlog.add(A, 0)
    backlog.add(B, 1)
    assert backlog.next(1) == Due(B, 0)


def test_failures_double_the_wait_up_to_the_cap_and_success_forgets_them() -> None:
    backlog = Backlog(debounce=0, retry_base=1, retry_cap=5)
    waits = []
    for _ in range(5):
        backlog.start(A)
        waits.append(backlog.fail(A, 0))
    assert waits == [1, 2, 4, 5, 5]
    backlog.start(A)
    backlog.succeed(A)
    backlog.start(A)
    assert backlog.fail(A, 0) == 1


def test_events_do_not_shorten_a_failing_names_backoff() -> None:
    backlog = Backlog(debounce=0, retry_base=8)
    backlog.start(A)
    backlog.fail(A, 100)
    backlog.add(A, 101)
    assert backlog.next(101) == Due(A, 7)


def test_a_tick_does_not_hurry_a_name_that_waits_for_a_person_but_an_event_does() -> None:
    backlog = Backlog(debounce=0)
    backlog.add(A, 0, after=60)
    backlog.remind(A, 2)
    assert backlog.next(2) == Due(A, 58)
    backlog.add(A, 3)
    assert backlog.next(3) == Due(A, 0)


def test_a_tick_is_a_look_now_where_none_is_planned() -> None:
    backlog = Backlog(debounce=5)
    backlog.remind(A, 2)
    assert backlog.next(2) == Due(A, 0)


async def test_a_waiting_worker_wakes_for_a_name_that_comes_sooner() -> None:
    queue = KeyedQueue(asyncio.get_running_loop().time, Backlog(debounce=0))
    queue.add(A, after=3600)
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(B)
    async with asyncio.timeout(5):
        assert await worker == B
    assert len(queue) == 1


async def test_two_workers_share_the_names() -> None:
    queue = KeyedQueue(asyncio.get_running_loop().time, Backlog(debounce=0))
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    queue.add(A)
    queue.add(B)
    async with asyncio.timeout(5):
        assert set(await asyncio.gather(*workers)) == {A, B}
