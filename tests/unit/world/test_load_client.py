"""What the client of `/load` makes of servers that answer well, badly, slowly, hugely or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from tidegate_operator.observed import UnreadableLoad
from tidegate_operator.observed_load import MAX_LOAD_BYTES
from tidegate_operator.world.load_client import HttpLoadClient

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + body


class Server:
    """Gives each request the same answer (None: none at all), and keeps what it was asked."""

    def __init__(self, answer: bytes | None, *, close: bool = False) -> None:
        self._answer, self._close = answer, close
        self.connections = 0
        self.requests: list[str] = []
        self.done = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not reader.at_eof():
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                if self._answer is None:
                    await self.done.wait()
                    return
                writer.write(self._answer)
                await writer.drain()
                if self._close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return


@asynccontextmanager
async def asking(serve: Serve, patience: float = 30.0, host: str = "127.0.0.1") -> AsyncIterator[HttpLoadClient]:
    """A client of a server that serves each connection so; both are at their end afterwards."""
    handlers = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async with await asyncio.start_server(handle, host, 0) as server:
        client = HttpLoadClient(patience, port=server.sockets[0].getsockname()[1])
        try:
            yield client
        finally:
            await client.close()
            for handler in handlers:
                assert handler is not None
                handler.cancel()
            await asyncio.gather(*(handler for handler in handlers if handler), return_exceptions=True)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(http("500 Oh"), "HTTP 500", id="an error answer"),
        pytest.param(http("302 Found", b"", "location: http://127.0.0.1:1/"), "HTTP 302", id="a redirect"),
        pytest.param(http("200 OK", b" " * (MAX_LOAD_BYTES + 1)), f"at most {MAX_LOAD_BYTES}", id="too long a body"),
        pytest.param(http("200 OK")[:-4] + b"0" * 30 + b"\r\n\r\n", "Content-Length", id="a length beyond belief"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 3000, "not HTTP/1.1", id="endless headers"),
        pytest.param(CHUNKED, "Content-Length", id="a body without a length"),
        pytest.param(http("200 OK", b"{}", "content-length: 3"), "Content-Length", id="two lengths"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "not HTTP/1.1", id="another protocol"),
        pytest.param(b"HTTP/1.1 OK\r\n\r\n", "not HTTP/1.1", id="no status"),
        pytest.param(http("200 OK", b"{}")[:-1], "hung up", id="half a body, and hung up"),
    ],
)
async def test_a_bad_answer_is_one_line_on_why_there_is_no_report(answer: bytes, says: str) -> None:
    server = Server(answer, close=True)
    async with asking(server.serve) as client:
        with pytest.raises(UnreadableLoad, match=says) as caught:
            await client.load("127.0.0.1")
    assert "\n" not in str(caught.value)


async def test_a_pod_that_says_nothing_is_given_up_after_the_timeout() -> None:
    server = Server(None)
    async with asking(server.serve, patience=0.05) as client:
        with pytest.raises(UnreadableLoad, match=r"did not answer within 0\.05 s"):
            await client.load("127.0.0.1")
        server.done.set()


async def test_a_pod_that_refuses_is_an_error() -> None:
    client = HttpLoadClient(30.0, port=1)
    with pytest.raises(UnreadableLoad, match="/load: "):
        await client.load("127.0.0.1")
    await client.close()


async def test_one_connection_to_a_pod_is_kept_and_nothing_is_asked_for_but_the_load() -> None:
    server = Server(http("200 OK", b"{}", "set-cookie: a=b"))
    async with asking(server.serve) as client:
        assert [await client.load("127.0.0.1") for _ in range(3)] == [b"{}"] * 3
    assert server.connections == 1
    assert {request.splitlines()[0] for request in server.requests} == {"GET /load HTTP/1.1"}
    assert "cookie" not in server.requests[-1].lower()


async def test_a_connection_that_the_pod_has_closed_is_made_anew() -> None:
    server = Server(http("200 OK", b"{}"), close=True)
    async with asking(server.serve) as client:
        assert [await client.load("127.0.0.1") for _ in range(3)] == [b"{}"] * 3
    assert server.connections == 3


async def test_an_answer_that_comes_in_small_pieces_is_put_together() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in http("200 OK", b'{"a": 1}'):
            writer.write(bytes([byte]))
            await writer.drain()

    async with asking(serve) as client:
        assert await client.load("127.0.0.1") == b'{"a": 1}'


async def test_a_pod_that_drains_and_says_so_is_asked_on_a_new_connection() -> None:
    server = Server(http("200 OK", b"{}", "Connection: Close"))
    async with asking(server.serve) as client:
        assert [await client.load("127.0.0.1") for _ in range(2)] == [b"{}"] * 2
    assert server.connections == 2


async def test_more_than_was_asked_for_ends_the_connection() -> None:
    server = Server(http("200 OK", b"{}") + b"HTTP/1.1 200 OK\r\n")
    async with asking(server.serve) as client:
        assert [await client.load("127.0.0.1") for _ in range(2)] == [b"{}"] * 2
    assert server.connections == 2


async def test_the_connection_to_a_pod_that_is_gone_is_closed() -> None:
    server = Server(http("200 OK", b"{}"))
    async with asking(server.serve) as client:
        await client.load("127.0.0.1")
        client.keep({"127.0.0.1"})
        await client.load("127.0.0.1")
        assert server.connections == 1
        client.keep({"10.0.0.1"})
        await client.load("127.0.0.1")
        assert server.connections == 2


async def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    answers = [b"", http("200 OK", b"{}")]
    late: list[asyncio.StreamWriter] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer := answers.pop(0):
            writer.write(answer)
            await reader.read()
        else:
            late.append(writer)
            await done.wait()

    async with asking(serve, patience=0.2) as client:
        with pytest.raises(UnreadableLoad, match="did not answer"):
            await client.load("127.0.0.1")
        late[0].write(http("200 OK", b"old"))
        assert await client.load("127.0.0.1") == b"{}"
        done.set()


async def test_an_ipv6_pod_is_asked_in_brackets() -> None:
    server = Server(http("200 OK", b"{}"))
    async with asking(server.serve, host="::1") as client:
        await client.load("::1")
    assert "\r\nHost: [::1]:" in server.requests[0]
