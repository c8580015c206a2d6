"""The little of HTTP that the endpoints need, straight on ASGI: it is in the path of every token."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate_engine.server.errors import ApiError, TooLarge
from tidegate_engine.server.service import Service

JSON = (b"content-type", b"application/json")
_EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientGone(Exception):
    """The connection closed before the request was whole."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The request's body; raises TooLarge over `limit` bytes, as early as that is known."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limit: int) -> TooLarge:
    # The unread rest would be taken for the next request.
    return TooLarge(
        f"the body is over {limit} bytes; send less, or raise --max-body-size", headers={"Connection": "close"}
    )


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def send_json(send: Send, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """A whole response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *_raw(headers or {})]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError, headers: Mapping[str, str] | None = None) -> None:
    """OpenAI's error object with its status."""
    await send_json(send, error.body(), error.status, {**error.headers, **(headers or {})})


async def start_events(send: Send, headers: Mapping[str, str]) -> None:
    """The head of a stream of events."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS, *_raw(headers)]})


async def send_events(send: Send, data: bytes, last: bool = False) -> None:
    """Whole events; waits where the client reads too slowly."""
    await send({"type": "http.response.body", "body": data, "more_body": not last})


def event(data: bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + data + b"\n\n"


class CloseWhileDraining:
    """Adds `Connection: close` to every response of a draining pod, so that clients reconnect elsewhere."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""

        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self._service.draining:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_closing)
