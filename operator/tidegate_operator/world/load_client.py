"""`GET /load` of one pod over a connection that is kept: bounded in time and in size.

A client of its own, for the one request there is: thousands of pods are read on one core, and of what a read takes
(parsing, comparing and deciding included) aiohttp's client was more than a third, httpx's nine tenths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol, cast

from tidegate_operator.observed import UnreadableLoad
from tidegate_operator.observed_load import MAX_LOAD_BYTES

ADMIN_PORT = 9000
MAX_HEAD_BYTES = 8 * 1024


class LoadClient(Protocol):
    """Asks pods; tests have their own."""

    async def load(self, ip: str) -> bytes:
        """The body. Raises UnreadableLoad, with one line on why there is none."""
        ...

    def keep(self, ips: Collection[str]) -> None:
        """Close the kept connections to all others."""
        ...

    async def close(self) -> None:
        """Close all kept connections."""
        ...


class HttpLoadClient:
    """The real one: HTTP/1.1, no redirects, cookies, proxies or compression; an answer must tell its length."""

    def __init__(self, timeout: float, *, port: int = ADMIN_PORT) -> None:
        self._timeout, self._port = timeout, port
        self._kept: dict[str, _Connection] = {}

    async def load(self, ip: str) -> bytes:
        """The body of an answer 200 of at most 24 KiB, within the timeout."""
        connection = self._kept.pop(ip, None)
        try:
            async with asyncio.timeout(self._timeout):
                if connection is not None and not connection.is_closed:
                    try:
                        return await self._ask(connection, ip)
                    except ConnectionError:
                        pass  # the pod closed it as we asked: it is asked again on a new one
                connection = await self._connected(ip)
                return await self._ask(connection, ip)
        except TimeoutError as error:
            raise UnreadableLoad(f"/load did not answer within {self._timeout:g} s") from error
        except OSError as error:
            raise UnreadableLoad(f"/load: {error or type(error).__name__}") from error
        finally:
            if connection is not None and self._kept.get(ip) is not connection:
                connection.abort()

    def keep(self, ips: Collection[str]) -> None:
        """Close the kept connections to all others."""
        for ip in self._kept.keys() - ips:
            self._kept.pop(ip).abort()

    async def close(self) -> None:
        """Close all kept connections."""
        self.keep(())
        await asyncio.sleep(0)  # the transports close in the loop's next turn

    async def _connected(self, ip: str) -> _Connection:
        host = f"[{ip}]" if ":" in ip else ip
        request = f"GET /load HTTP/1.1\r\nHost: {host}:{self._port}\r\nAccept: application/json\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _Connection(request), ip, self._port)
        return connection

    async def _ask(self, connection: _Connection, ip: str) -> bytes:
        body = await connection.ask()
        if not connection.is_closed:
            self._kept[ip] = connection
        return body


class _Connection(asyncio.Protocol):
    """One connection, on which one request at a time is made."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._read = bytearray()
        self.is_closed = False

    def ask(self) -> asyncio.Future[bytes]:
        """The body to come. Fails with UnreadableLoad, or ConnectionError where the pod closed before it answered."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return self._answer

    def abort(self) -> None:
        """Close at once; nobody waits for an answer any more."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc if isinstance(exc, ConnectionError) else ConnectionResetError("hung up"))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # nothing was asked
            return
        self._read += data
        try:
            answer = _answer_in(self._read)
        except UnreadableLoad as failure:
            self.abort()
            self._answer.set_exception(failure)
            return
        if answer is not None:
            body, stays_open = answer
            self._read.clear()
            if not stays_open:
                self.abort()
            self._answer.set_result(body)


def _answer_in(read: bytearray) -> tuple[bytes, bool] | None:
    """The body, and whether the connection stays open; None: more is to come. Raises UnreadableLoad."""
    end = read.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
    if end < 0:
        if len(read) >= MAX_HEAD_BYTES or not b"HTTP/1.".startswith(read[:7]):
            raise UnreadableLoad("/load: the answer is not HTTP/1.1")
        return None
    status, *lines = bytes(read[:end]).split(b"\r\n")
    version, _, rest = status.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not rest[:3].isdigit():
        raise UnreadableLoad("/load: the answer is not HTTP/1.1")
    if rest[:3] != b"200":
        raise UnreadableLoad(f"/load answered HTTP {rest[:3].decode()}")
    fields = [(name.strip(), value.strip()) for name, _, value in (line.lower().partition(b":") for line in lines)]
    lengths = {value for name, value in fields if name == b"content-length"}
    if len(lengths) != 1 or not (length := lengths.pop()).isdigit() or len(length) > 9:
        raise UnreadableLoad("/load answered without saying how long its body is (Content-Length)")
    if int(length) > MAX_LOAD_BYTES:
        raise UnreadableLoad(f"/load answered {int(length)} bytes; at most {MAX_LOAD_BYTES} are read")
    whole = end + 4 + int(length)
    if len(read) < whole:
        return None
    stays_open = version == b"HTTP/1.1" and (b"connection", b"close") not in fields and len(read) == whole
    return bytes(read[end + 4 : whole]), stays_open
