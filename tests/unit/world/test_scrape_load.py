"""What the scraper makes of pods that answer well, badly, slowly, hugely or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from tidegate_operator.world.scrape import Scraper, Target

GOOD = (
    b'{"version": 1, "boot": "b1", "state": "ready", "uptime_s": 1.5, "slots": 8, "running": 1, "waiting": 2,'
    b' "counters": {"received": 3, "finished": 0}}'
)
POD = Target("u1", "10.0.0.1")


class Endless(httpx.AsyncByteStream):
    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += 4096
            yield b"x" * 4096


class Silent(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


def answering(response: httpx.Response | Exception) -> httpx.MockTransport:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(response, Exception):
            raise response
        return response

    return httpx.MockTransport(handle)


@pytest.mark.parametrize(
    ("response", "says"),
    [
        pytest.param(httpx.Response(500), "HTTP 500", id="an error answer"),
        pytest.param(httpx.Response(302, headers={"location": "http://elsewhere/"}), "HTTP 302", id="a redirect"),
        pytest.param(httpx.Response(200, content=b"hello"), "not a load report", id="not JSON"),
        pytest.param(
            httpx.Response(200, content=GOOD.replace(b"2", b"-2")), "not a load report", id="a negative count"
        ),
        pytest.param(httpx.Response(200, stream=Endless()), "more than", id="an endless body"),
        pytest.param(httpx.Response(200, stream=Silent()), "did not answer within", id="headers and then silence"),
        pytest.param(httpx.ConnectError("refused"), "refused", id="connection refused"),
        pytest.param(httpx.ConnectTimeout("slow"), "did not answer within", id="no connection in time"),
    ],
)
async def test_a_pod_that_answers_badly_is_an_error_and_no_number(
    response: httpx.Response | Exception, says: str
) -> None:
    scraper = Scraper(0.2, transport=answering(response))
    assert await scraper.scrape([POD]) == 1
    reading = scraper.reading("u1")
    assert reading is not None
    assert reading.load is None
    assert says in (reading.error or "")
    await scraper.close()


async def test_a_bad_answer_keeps_the_last_good_report_and_its_time() -> None:
    answers = [httpx.Response(200, content=GOOD), httpx.Response(503)]
    now = [10.0]
    scraper = Scraper(30, clock=lambda: now[0], transport=httpx.MockTransport(lambda _: answers.pop(0)))
    assert await scraper.scrape([POD]) == 0
    now[0] = 12.0
    assert await scraper.scrape([POD]) == 1
    reading = scraper.reading("u1")
    assert reading is not None
    assert reading.load is not None
    assert (reading.load.waiting, reading.read_at, reading.error) == (2, 10.0, "/load answered HTTP 503")
    await scraper.close()


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    scraper = Scraper(30, transport=httpx.MockTransport(lambda _: httpx.Response(200, content=GOOD)))
    await scraper.scrape([POD])
    await scraper.scrape([Target("u2", "10.0.0.2")])
    assert scraper.reading("u1") is None
    assert scraper.reading("u2") is not None
    await scraper.close()


async def test_an_ipv6_pod_is_asked_in_brackets() -> None:
    asked = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, content=GOOD)

    scraper = Scraper(30, transport=httpx.MockTransport(handle))
    await scraper.scrape([Target("u1", "fd00::5")])
    assert asked == ["http://[fd00::5]:9000/load"]
    await scraper.close()
