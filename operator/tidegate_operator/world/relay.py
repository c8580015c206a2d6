"""Only the operator that leads knows numbers; one that stands by passes questions on to it, one step and no further.

Whom to ask stands in the Lease. The one asked has to hold the key of the certificate that both were given: an address
that has passed to another pod meanwhile cannot answer, since an HPA would act on it.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from yarl import URL

from tidegate_operator.world.leader import Holder

FORWARDED_BY = "X-Tidegate-Forwarded-By"
"""A question that has it is never passed on again: two that each take the other for the leader make no circle."""
PATIENCE_S = 3.0


class NoAnswer(Exception):
    """Nobody answers for the leader; the message says why, for the HPA's condition."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the leader said."""

    status: int
    body: bytes
    content_type: str


class Relay:
    """Asks whoever leads."""

    def __init__(
        self,
        identity: str,
        holder: Callable[[], Holder | None],
        fingerprints: Callable[[], tuple[bytes, ...]],
        patience: float = PATIENCE_S,
    ) -> None:
        """`holder` and `fingerprints` (SHA-256, the newest first) are asked anew at every question."""
        self._identity, self._holder, self._fingerprints = identity, holder, fingerprints
        self._patience = aiohttp.ClientTimeout(total=patience)
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, path_and_query: str) -> Answer:
        """The leader's answer, whatever it is. Raises NoAnswer."""
        holder = self._holder()
        if holder is None or holder.identity == self._identity:
            raise NoAnswer("no operator leads at the moment")
        who = f"the leading operator, {holder.identity}"
        if holder.address is None:
            raise NoAnswer(f"{who}, does not say where it serves external metrics")
        try:
            url = URL(f"https://{authority(*_split(holder.address))}{path_and_query}", encoded=True)
        except ValueError as error:
            raise NoAnswer(f"{who}, gives an address that is none: {holder.address!r}") from error
        stranger: aiohttp.ServerFingerprintMismatch | None = None
        for fingerprint in self._fingerprints():
            try:
                return await self._get(url, aiohttp.Fingerprint(fingerprint))
            except aiohttp.ServerFingerprintMismatch as error:
                stranger = error
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise NoAnswer(f"{who}, did not answer at {holder.address}: {_why(error)}") from error
        raise NoAnswer(f"{who}, has another certificate at {holder.address} than this one") from stranger

    async def close(self) -> None:
        """Close the kept connections."""
        if self._session is not None:
            await self._session.close()

    async def _get(self, url: URL, fingerprint: aiohttp.Fingerprint) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._patience, headers={FORWARDED_BY: self._identity})
        async with self._session.get(url, ssl=fingerprint, allow_redirects=False) as answer:
            return Answer(answer.status, await answer.read(), answer.content_type)


def _why(error: Exception) -> str:
    """The same words each time, since an HPA's condition keeps them; the library's own name an object in memory."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno)
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


def authority(ip: str, port: int) -> str:
    """Host and port as a URL writes them. Raises ValueError where `ip` is no address."""
    address = ipaddress.ip_address(ip)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{address!r} has no port")
    return host.removeprefix("[").removesuffix("]"), int(port)
