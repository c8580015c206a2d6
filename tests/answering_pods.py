"""Pods that answer `GET /load` as a test tells them to, without a network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from tidegate_operator.observed import UnreadableLoad
from tidegate_operator.world.load_client import LoadClient

Answer = Callable[[str], Awaitable[bytes]]


class AnsweringPods(LoadClient):
    """Implements LoadClient: each pod, by its address, gives what `answer` returns or raises."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.kept: set[str] = set()
        self.closed = False

    async def load(self, ip: str) -> bytes:
        self.asked.append(ip)
        return await self._answer(ip)

    def keep(self, ips: Collection[str]) -> None:
        self.kept = set(ips)

    async def close(self) -> None:
        self.closed = True


def always(body: bytes) -> AnsweringPods:
    """Every pod answers this."""

    async def answer(_: str) -> bytes:
        return body

    return AnsweringPods(answer)


def broken(why: str = "/load answered HTTP 503") -> AnsweringPods:
    """No pod answers."""

    async def answer(_: str) -> bytes:
        raise UnreadableLoad(why)

    return AnsweringPods(answer)
