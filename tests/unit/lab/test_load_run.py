"""The load generator against a server that answers well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tidegate_lab.load.report import Report
from tidegate_lab.load.run import Load, Plan

Answer = Callable[[asyncio.StreamWriter, int], Awaitable[None]]
BETWEEN_S = 0.1
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chunk(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {"content": text} if text is not None else {"role": "assistant"}
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage(prompt: int, generated: int, cached: int = 0) -> bytes:
    told = {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return b"data: " + json.dumps({"choices": [], "usage": told}).encode() + b"\n\n"


async def good(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD + chunk() + chunk("one"))
    await writer.drain()
    await asyncio.sleep(BETWEEN_S)
    writer.write(chunk(" two") + chunk("", "stop") + usage(50, 2, 16) + b"data: [DONE]\n\n")


async def in_crumbs(writer: asyncio.StreamWriter, _: int) -> None:
    whole = chunk() + chunk("é") + chunk("", "length") + usage(5, 1) + b"data: [DONE]\n\n"
    writer.write(HEAD)
    for byte in whole:
        writer.write(bytes([byte]))
        await writer.drain()


async def busy(writer: asyncio.StreamWriter, _: int) -> None:
    body = b'{"error": {"message": "queue is full"}}'
    head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    writer.write(head % len(body) + body)


async def cut_off(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD + chunk() + chunk("one"))


async def no_done(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD + chunk("one") + chunk("", "stop"))


async def error_event(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD + chunk("one") + b'data: {"error": {"message": "the runtime died"}}\n\n')


async def garbage(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD + b"data: {{{\n\n")


async def no_chunk(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD + b"data: [1, 2]\n\n")


async def silent(writer: asyncio.StreamWriter, _: int) -> None:
    writer.write(HEAD)
    await writer.drain()
    await asyncio.sleep(30)


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    count = 0
    at_work: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            count += 1
            await answer(writer, count)
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            at_work.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in at_work:
            task.cancel()
        await server.wait_closed()


async def measured(answer: Answer, **plan: object) -> Report:
    async with serving(answer) as url:
        wanted = Plan(url=url, model="m", **({"concurrency": 1, "requests": 1, "timeout_s": 5.0} | plan))  # type: ignore[arg-type]
        load = Load(wanted)
        took = await load.run()
        return Report.of(wanted, load.outcomes, took)


async def test_a_good_stream_is_timed_token_by_token_and_counted_by_the_servers_usage() -> None:
    report = await measured(good, requests=3)
    assert (report.sent, report.completed, report.failed) == (3, 3, 0)
    assert (report.prompt_tokens, report.cached_tokens, report.generated_tokens) == (150, 48, 6)
    assert report.ttft and report.tpot and report.inter_token and report.e2e
    assert report.tpot.count == 3
    # Of two tokens the time between is all there is, less what a busy machine makes the client see the first one late.
    assert report.e2e.p50 >= BETWEEN_S
    assert report.tpot.max <= report.e2e.max
    assert report.tpot.max + report.ttft.max >= BETWEEN_S


async def test_a_stream_may_arrive_byte_by_byte() -> None:
    report = await measured(in_crumbs)
    assert (report.completed, report.generated_tokens) == (1, 1)
    assert report.tpot is None  # of one token there is no time per further token


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(busy, "http_429", id="a refusal is told by its status"),
        pytest.param(cut_off, "cut_off", id="a stream that ends in the middle is a failure"),
        pytest.param(no_done, "cut_off", id="a stream without [DONE] is a failure, though its text is whole"),
        pytest.param(error_event, "stream_error", id="an error inside a stream is a failure"),
        pytest.param(garbage, "bad_stream", id="what is not JSON is a failure"),
        pytest.param(no_chunk, "bad_stream", id="what is no chunk of a completion is a failure"),
        pytest.param(silent, "timeout", id="a stream that says nothing fails when its time is up"),
    ],
)
async def test_failures_are_counted_by_kind_and_enter_no_quantile(answer: Answer, kind: str) -> None:
    report = await measured(answer, timeout_s=0.5)
    assert (report.completed, report.failures) == (0, {kind: 1})
    assert kind in report.first_failure
    assert (report.ttft, report.tpot, report.e2e) == (None, None, None)


async def test_nobody_listening_is_a_failure_to_connect() -> None:
    async with serving(good) as url:
        pass
    load = Load(Plan(url=url, model="m", concurrency=1, requests=1))
    await load.run()
    assert [o.failure for o in load.outcomes] == ["connect"]


async def test_open_loop_sends_by_the_clock_whether_or_not_it_is_answered() -> None:
    all_are_there = asyncio.Event()

    async def after_the_last(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 20:
            all_are_there.set()
        await all_are_there.wait()
        await good(writer, number)

    report = await measured(after_the_last, concurrency=None, rate=100.0, requests=20, timeout_s=60.0)
    assert report.completed == 20


async def test_closed_loop_never_has_more_in_flight_than_it_may() -> None:
    now = most = 0

    async def counted(writer: asyncio.StreamWriter, number: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await good(writer, number)
        now -= 1

    report = await measured(counted, concurrency=3, requests=12)
    assert (report.completed, most) == (12, 3)


async def test_a_load_ends_when_its_time_is_up() -> None:
    report = await measured(good, concurrency=2, requests=10**6, duration_s=0.3)
    assert report.failed == 0
    assert 0.3 <= report.took_s < 3


async def test_stopping_sends_nothing_more_and_loses_nothing_in_flight() -> None:
    async with serving(good) as url:
        load = Load(Plan(url=url, model="m", concurrency=2, requests=10**6, duration_s=60))
        asyncio.get_running_loop().call_later(0.2, load.stop)
        await load.run()
    assert load.sent == len(load.outcomes) > 0
    assert not [o for o in load.outcomes if o.failure]


async def test_lateness_of_the_sender_counts_as_latency() -> None:
    async def blocks(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            time.sleep(0.5)  # noqa: ASYNC251  a sender that is kept from sending, as on a busy machine
        await good(writer, number)

    # A second of arrivals: however late the first is seen, some are due in what follows.
    report = await measured(blocks, concurrency=None, rate=50.0, requests=50)
    assert report.ttft is not None
    assert report.late_max_s > 0.1
    assert report.ttft.max > 0.1


def test_a_report_reads_back_what_it_wrote() -> None:
    plan = Plan(url="http://127.0.0.1", model="m", rate=1.0)
    report = Report.of(plan, [], 0.0)
    assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report
    assert "nothing measured" in report.text()
