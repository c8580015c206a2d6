"""What is kept of pods that answer well, badly, late or not at all."""

from __future__ import annotations

import asyncio

import pytest
from answering_pods import AnsweringPods, always, broken
from tidegate_operator.observed import UnreadableLoad
from tidegate_operator.world.scrape import PATIENCE_S, Asked, Reading, Scraper, Target
from virtual_time import in_virtual_time

GOOD = (
    b'{"version": 1, "boot": "b1", "state": "ready", "uptime_s": 1.5, "slots": 8, "running": 1, "waiting": 2,'
    b' "counters": {"received": 3, "finished": 0}}'
)
POD = Target("u1", "10.0.0.1")


def reading(scraper: Scraper, uid: str = "u1") -> Reading:
    found = scraper.reading(uid)
    assert found is not None
    return found


async def test_a_bad_answer_is_an_error_and_no_number() -> None:
    scraper = Scraper(broken("/load answered HTTP 500"))
    assert await scraper.ask([POD]) == Asked(1, 1)
    assert reading(scraper) == Reading(None, 0.0, "/load answered HTTP 500")
    scraper = Scraper(always(GOOD.replace(b"2", b"-2")))
    assert await scraper.ask([POD]) == Asked(1, 1)
    assert "not a load report" in (reading(scraper).error or "")


async def test_a_bad_answer_keeps_the_last_good_report_and_its_time() -> None:
    answers: list[bytes | UnreadableLoad] = [GOOD, UnreadableLoad("/load answered HTTP 503")]

    async def answer(_: str) -> bytes:
        body = answers.pop(0)
        if isinstance(body, UnreadableLoad):
            raise body
        return body

    now = [10.0]
    scraper = Scraper(AnsweringPods(answer), clock=lambda: now[0])
    assert await scraper.ask([POD]) == Asked(1, 0)
    now[0] = 12.0
    assert await scraper.ask([POD]) == Asked(1, 1)
    kept = reading(scraper)
    assert kept.load is not None
    assert (kept.load.waiting, kept.read_at, kept.error) == (2, 10.0, "/load answered HTTP 503")


def test_ten_thousand_pods_that_are_gone_are_forgotten() -> None:
    async def course() -> None:
        scraper = Scraper(pods := always(GOOD), clock=asyncio.get_running_loop().time)
        await scraper.ask([Target(f"u{n}", f"10.0.{n >> 8}.{n & 255}") for n in range(10_000)])
        assert len(scraper) == 10_000
        scraper.keep([Target("u7", "10.0.0.7")])
        assert len(scraper) == 1
        assert pods.kept == {"10.0.0.7"}
        assert scraper.reading("u6") is None
        assert reading(scraper, "u7").load is not None

    in_virtual_time(course())


class OneHangs(AnsweringPods):
    """10.0.0.1 gives up after 1.5 s, as the client does; all others answer at once."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.hangs = True

    async def _reply(self, ip: str) -> bytes:
        if ip == "10.0.0.1" and self.hangs:
            await asyncio.sleep(1.5)
            raise UnreadableLoad("/load did not answer within 1.5 s")
        return GOOD


def test_a_pod_that_hangs_costs_its_neighbours_half_a_second_once_and_later_nothing() -> None:
    async def course() -> None:
        clock = asyncio.get_running_loop().time
        scraper = Scraper(pods := OneHangs(), clock=clock)
        both = [POD, Target("u2", "10.0.0.2")]
        assert await scraper.ask(both) == Asked(2, 1)
        assert clock() == PATIENCE_S
        assert reading(scraper, "u2").load is not None
        await asyncio.sleep(4.5)
        assert reading(scraper).error == "/load did not answer within 1.5 s"
        began = clock()
        assert await scraper.ask(both) == Asked(2, 1)
        assert clock() == began  # the neighbour is read, and nobody waits for the one that hangs
        pods.hangs = False
        await asyncio.sleep(5)
        await scraper.ask(both)  # it is not waited for yet, but what it says is taken
        await asyncio.sleep(5)
        assert await scraper.ask(both) == Asked(2, 0)

    in_virtual_time(course())


def test_a_pod_that_owes_an_answer_is_not_asked_again() -> None:
    async def course() -> None:
        scraper = Scraper(pods := OneHangs(), clock=asyncio.get_running_loop().time)
        await scraper.ask([POD])
        await scraper.ask([POD])
        assert pods.asked == ["10.0.0.1"]
        await scraper.close()
        assert pods.closed

    in_virtual_time(course())


async def test_a_defect_in_reading_ends_the_loop_instead_of_being_taken_for_a_silent_pod() -> None:
    async def answer(_: str) -> bytes:
        raise ZeroDivisionError

    scraper = Scraper(AnsweringPods(answer))
    await scraper.ask([POD])
    with pytest.raises(ZeroDivisionError):
        await scraper.ask([POD])
