"""Answers `GET /load` for thousands of pods: each has a loopback address of its own, and connections are kept."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import cast

from tidegate_bench_operator.pod_load import PodLoad

ADMIN_PORT = 9000
FIRST = int(ipaddress.IPv4Address("127.64.0.1"))


def address(number: int) -> str:
    """The loopback address of one pod."""
    return str(ipaddress.IPv4Address(FIRST + number))


@dataclass(slots=True)
class Pods:
    """The pods that answer, by address, and how often each is asked."""

    loads: dict[str, PodLoad] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    """Those that take a connection and never answer."""
    answers: int = 0
    bytes_sent: int = 0
    connections: int = 0
    gaps: list[float] = field(default_factory=list)
    """Seconds between two asks of one pod, since the last `told`."""
    asked: dict[str, float] = field(default_factory=dict)
    open: dict[str, set[asyncio.Transport]] = field(default_factory=dict)

    def remove(self, ip: str) -> None:
        """The pod is gone, and its connections with it."""
        self.loads.pop(ip, None)
        self.silent.discard(ip)
        self.asked.pop(ip, None)
        for transport in self.open.pop(ip, set()):
            transport.close()

    def told(self) -> dict[str, float]:
        """What was seen since this was last asked."""
        gaps, self.gaps = sorted(self.gaps), []
        spread = quantiles(gaps, n=100) if len(gaps) > 1 else [0.0] * 99
        seen = {
            "answers": self.answers,
            "body_bytes": self.bytes_sent / self.answers if self.answers else 0.0,
            "connections": self.connections,
            "gap_p1": spread[0],
            "gap_p50": spread[49],
            "gap_p99": spread[98],
            "gap_max": gaps[-1] if gaps else 0.0,
        }
        self.answers = self.bytes_sent = self.connections = 0
        return seen


class _Connection(asyncio.Protocol):
    """One connection; a request ends with an empty line and has no body."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is one without saying so
        self._ip: str = transport.get_extra_info("sockname")[0]
        self._pods.connections += 1
        self._pods.open.setdefault(self._ip, set()).add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pods.open.get(self._ip, set()).discard(self._transport)

    def data_received(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for _ in whole:
            self._answer()

    def _answer(self) -> None:
        pods, now = self._pods, time.monotonic()
        load = pods.loads.get(self._ip)
        if load is None:
            self._transport.close()
            return
        if self._ip in pods.silent:
            return
        before = pods.asked.get(self._ip)
        if before is not None:
            pods.gaps.append(now - before)
        pods.asked[self._ip] = now
        body = load.answer(now)
        pods.answers += 1
        pods.bytes_sent += len(body)
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
            b"content-length: %d\r\ncontent-type: application/json\r\n\r\n%b" % (len(body), body)
        )


async def serve(pods: Pods, addresses: Sequence[str]) -> list[asyncio.Server]:
    """Listen on every address."""
    loop = asyncio.get_running_loop()
    return [
        await loop.create_server(lambda: _Connection(pods), ip, ADMIN_PORT, backlog=16, reuse_address=True)
        for ip in addresses
    ]
