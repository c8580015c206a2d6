"""Messages over a Unix socket: a 4-byte big-endian length, then one msgpack frame.

The server's side is asyncio. The other side is blocking and has no reader thread: a busy thread beside the step loop
costs the GIL at every switch, so the loop looks at the socket between steps and sleeps in it when there is no work.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tidegate_engine.link.messages import ToRuntime, ToServer

_LENGTH_BYTES = 4
LARGEST_FRAME = 256 * 2**20
"""Bytes. More can only be a broken stream: a prompt of a million tokens takes five."""

Received = TypeVar("Received")
_encoder = msgspec.msgpack.Encoder()


class Waitable(Protocol):
    """Something that select can sleep on."""

    def fileno(self) -> int: ...


class ChannelClosed(ConnectionError):
    """The other process is gone; nothing sent now would be read."""


def frame(message: msgspec.Struct) -> bytes:
    """A message as it travels."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _frame_length(header: bytes | bytearray) -> int:
    length = int.from_bytes(header, "big")
    if length > LARGEST_FRAME:
        raise ChannelClosed(f"a frame of {length} bytes: the stream is broken")
    return length


class AsyncChannel:
    """The server's end. `send` never waits, so that it can be used while a request is being cancelled."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)

    @classmethod
    async def open(cls, end: socket.socket) -> AsyncChannel:
        """Take over one end of a connected Unix socket pair."""
        reader, writer = await asyncio.open_unix_connection(sock=end)
        return cls(reader, writer)

    def send(self, message: ToRuntime) -> None:
        """Hand a message to the socket; raises ChannelClosed where the other side is known to be gone."""
        if self._writer.is_closing() or self._reader.at_eof():
            raise ChannelClosed("the runtime is gone")
        self._writer.write(frame(message))

    async def receive(self) -> ToServer | None:
        """The next message, or None once the other side has closed; cancelling it between frames loses nothing."""
        try:
            header = await self._reader.readexactly(_LENGTH_BYTES)
            body = await self._reader.readexactly(_frame_length(header))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return self._decoder.decode(body)

    async def close(self) -> None:
        """Close this end, which the runtime reads as Quit."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


class BlockingChannel(Generic[Received]):
    """An end without asyncio. `closed` turns true when the other side has gone; `poll` then returns at once."""

    def __init__(self, end: socket.socket, receives: Any) -> None:
        """`receives` is the union of message types that the other side may send, such as ToRuntime."""
        end.setblocking(True)
        self._socket = end
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(receives)
        self._buffer = bytearray()
        self.closed = False

    def poll(self, timeout: float | None = 0.0, beside: Sequence[Waitable] = ()) -> list[Received]:
        """Whole messages that have arrived, in order; none where only a part has, or only something `beside` woke us.

        Sleeps up to `timeout` seconds where there is none yet; None sleeps for ever.
        """
        messages = self._read_available()
        if not messages and not self.closed and timeout != 0:
            select.select([self._socket, *beside], [], [], timeout)
            messages = self._read_available()
        return messages

    def send(self, message: msgspec.Struct) -> None:
        """Write a whole message; raises ChannelClosed where nobody reads any more."""
        try:
            self._socket.sendall(frame(message))
        except OSError as error:
            self.closed = True
            raise ChannelClosed(f"the other process is gone: {error}") from error

    def fileno(self) -> int:
        """For select, beside other descriptors."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; the other side's next poll sees it."""
        self.closed = True
        self._socket.close()

    def _read_available(self) -> list[Received]:
        while not self.closed:
            try:
                data = self._socket.recv(2**18, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                self.closed = True
            self._buffer += data
        return self._take_frames()

    def _take_frames(self) -> list[Received]:
        messages: list[Received] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH_BYTES:
            length = _frame_length(self._buffer[start : start + _LENGTH_BYTES])
            end = start + _LENGTH_BYTES + length
            if len(self._buffer) < end:
                break
            messages.append(self._decoder.decode(bytes(self._buffer[start + _LENGTH_BYTES : end])))
            start = end
        del self._buffer[:start]
        return messages
