"""Reads `GET /load` of every engine pod: bounded in time, in size and in how many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import httpx

from tidegate_operator.observed import LoadReport, UnreadableLoad, read_load
from tidegate_operator.observed_load import MAX_LOAD_BYTES

ADMIN_PORT = 9000
AT_ONCE = 32


class Target(NamedTuple):
    """An engine pod that can be asked."""

    uid: str
    ip: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The last report of a pod, when it was read (monotonic seconds), and why the newest attempt failed, if it did."""

    load: LoadReport | None = None
    read_at: float = 0.0
    error: str | None = None


class Scraper:
    """The readings of all pods. Those of pods that are no target any more are forgotten."""

    def __init__(
        self,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
        port: int = ADMIN_PORT,
    ) -> None:
        # Ambient proxies must not see, nor answer for, pods. Connections outlive the longest interval (60 s).
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=2048, keepalive_expiry=90)
        self._http = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False, transport=transport)
        self._timeout, self._clock, self._port = timeout, clock, port
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._readings: dict[str, Reading] = {}

    def reading(self, uid: str) -> Reading | None:
        """What is known of this pod; None: it was never asked."""
        return self._readings.get(uid)

    async def scrape(self, targets: Collection[Target]) -> int:
        """Ask every target once; returns how many did not answer well."""
        wanted = {target.uid for target in targets}
        self._readings = {uid: reading for uid, reading in self._readings.items() if uid in wanted}
        results = await asyncio.gather(*(self._one(target) for target in targets))
        return sum(not good for good in results)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._http.aclose()

    async def _one(self, target: Target) -> bool:
        before = self._readings.get(target.uid, Reading())
        try:
            async with self._gate, asyncio.timeout(self._timeout):
                load = read_load(await self._get(target))
        except (TimeoutError, httpx.TimeoutException):
            error = f"/load did not answer within {self._timeout:g} s"
        except httpx.HTTPError as failure:
            error = f"/load: {failure or type(failure).__name__}"
        except UnreadableLoad as failure:
            error = str(failure)
        else:
            self._readings[target.uid] = Reading(load, self._clock())
            return True
        self._readings[target.uid] = replace(before, error=error)
        return False

    async def _get(self, target: Target) -> bytes:
        host = f"[{target.ip}]" if ":" in target.ip else target.ip
        body = bytearray()
        async with self._http.stream("GET", f"http://{host}:{self._port}/load") as response:
            if response.status_code != 200:
                raise UnreadableLoad(f"/load answered HTTP {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_LOAD_BYTES:
                    raise UnreadableLoad(f"/load answered more than {MAX_LOAD_BYTES} bytes")
        return bytes(body)
