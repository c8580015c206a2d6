"""`GET /load` of one pod over a connection that is kept: bounded in time and in size."""

from __future__ import annotations

from typing import Protocol

import aiohttp
from yarl import URL

from tidegate_operator.observed import UnreadableLoad
from tidegate_operator.observed_load import MAX_LOAD_BYTES

ADMIN_PORT = 9000
KEPT_S = 70.0
"""A little less than the engine keeps an idle connection (75 s), so that it is ours to close."""


class LoadClient(Protocol):
    """Asks pods; tests have their own."""

    async def load(self, ip: str) -> bytes:
        """The body. Raises UnreadableLoad, with one line on why there is none."""
        ...

    async def close(self) -> None:
        """Close the kept connections."""
        ...


class HttpLoadClient:
    """The real one. Made where a loop runs. httpx takes ten times as long to ask, as its pool looks through all of its
    connections for each request."""

    def __init__(self, timeout: float, *, port: int = ADMIN_PORT) -> None:
        self._timeout, self._port = timeout, port
        # Ambient proxies must not see, nor answer for, pods; nor may one pod's cookies reach another.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S),
            timeout=aiohttp.ClientTimeout(total=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
            read_bufsize=MAX_LOAD_BYTES,
        )

    async def load(self, ip: str) -> bytes:
        """The body of an answer 200 of at most 24 KiB, within the timeout."""
        url = URL.build(scheme="http", host=ip, port=self._port, path="/load")
        try:
            async with self._http.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise UnreadableLoad(f"/load answered HTTP {response.status}")
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > MAX_LOAD_BYTES:
                        raise UnreadableLoad(f"/load answered more than {MAX_LOAD_BYTES} bytes")
                return bytes(body)
        except TimeoutError as error:
            raise UnreadableLoad(f"/load did not answer within {self._timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnreadableLoad(f"/load: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Close the kept connections."""
        await self._http.close()
