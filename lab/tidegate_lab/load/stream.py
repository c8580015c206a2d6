"""One streaming chat request on a connection of its own, timed token by token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request asks. `due` is when it should leave, by time.perf_counter."""

    number: int
    due: float
    model: str
    prompt: str
    max_tokens: int
    timeout_s: float
    exact: bool = False
    """Whether the answer is to be of just that many tokens, wherever the model would end it."""

    def body(self) -> dict[str, Any]:
        """The JSON of the request."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        } | ({"ignore_eos": True} if self.exact else {})


@dataclass(slots=True)
class Outcome:
    """What became of one request; seconds count from when it was due, so a late sender hides nothing."""

    number: int
    due_s: float = 0.0
    """When it should have left, seconds since the run began."""
    failure: str | None = None
    """None: completed. Else its kind: connect, timeout, http_429, cut_off, stream_error, bad_stream…"""
    detail: str = ""
    late_s: float = 0.0
    """How long after its time this machine got round to sending it."""
    ttft_s: float | None = None
    e2e_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    """Between one chunk with text and the next."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    """Generated, by the server's own count."""

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for answers of fewer than two tokens."""
        if self.failure or self.ttft_s is None or self.tokens < 2:
            return None
        return sum(self.gaps_s) / (self.tokens - 1)


class _Failed(Exception):
    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind)
        self.kind, self.detail = kind, detail[:200]


def client() -> httpx.AsyncClient:
    """A client that opens a connection per request: a Service balances connections, not requests."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(limits=limits, timeout=None, trust_env=False, headers={"Connection": "close"})


async def send(http: httpx.AsyncClient, url: str, ask: Ask) -> Outcome:
    """Send `ask`, read its stream to the end, and tell what happened; every failure is an outcome."""
    outcome = Outcome(ask.number, late_s=max(0.0, time.perf_counter() - ask.due))
    try:
        async with asyncio.timeout(ask.timeout_s):
            await _exchange(http, url, ask, outcome)
    except TimeoutError:
        outcome.failure, outcome.detail = "timeout", f"no end within {ask.timeout_s:g} s"
    except _Failed as error:
        outcome.failure, outcome.detail = error.kind, error.detail
    except httpx.ConnectError as error:
        outcome.failure, outcome.detail = "connect", str(error)[:200]
    except httpx.TransportError as error:
        outcome.failure, outcome.detail = "cut_off", f"{type(error).__name__}: {error}"[:200]
    outcome.e2e_s = time.perf_counter() - ask.due
    return outcome


async def _exchange(http: httpx.AsyncClient, url: str, ask: Ask, outcome: Outcome) -> None:
    last: float | None = None
    finished = done = False
    async with http.stream("POST", f"{url}/v1/chat/completions", json=ask.body()) as response:
        if response.status_code != 200:
            raise _Failed(f"http_{response.status_code}", (await response.aread()).decode(errors="replace"))
        async for data in _events(response):
            now = time.perf_counter()
            if data == b"[DONE]":
                done = True
                continue
            event = _event(data)
            finished = finished or event.finished
            if event.usage:
                outcome.prompt_tokens, outcome.cached_tokens, outcome.tokens = event.usage
            if not event.text:
                continue
            if last is None:
                outcome.ttft_s = now - ask.due
            else:
                outcome.gaps_s.append(now - last)
            last = now
    if not (finished and done):
        raise _Failed("cut_off", "the stream ended without finish_reason and [DONE]")


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each server-sent event."""
    pending = b""
    async for chunk in response.aiter_bytes():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


@dataclass(frozen=True, slots=True)
class _Event:
    text: str
    finished: bool
    usage: tuple[int, int, int] | None
    """Tokens of the prompt, those of them from cache, generated ones."""


def _event(data: bytes) -> _Event:
    try:
        event = json.loads(data)
        if "error" in event:
            raise _Failed("stream_error", json.dumps(event["error"]))
        usage = None
        if (told := event.get("usage")) is not None:
            cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            usage = (told["prompt_tokens"], cached, told["completion_tokens"])
        choices = event["choices"]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        return _Event(text, any(choice.get("finish_reason") for choice in choices), usage)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _Failed("bad_stream", f"no chunk of a chat completion: {data[:100]!r}") from error
