"""The certificate in a folder, as in a Secret of type kubernetes.io/tls; one that is renewed needs no restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

RELOAD_EVERY_S = 30.0

log = logging.getLogger("tidegate.operator")


class NoCertificate(Exception):
    """The folder holds no certificate that can be used; the message names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class _Pair:
    context: ssl.SSLContext
    fingerprint: bytes


class Certificate:
    """The newest certificate that could be read; one that is renewed is taken for new connections."""

    def __init__(self, tls: Path) -> None:
        """Read `tls.crt` and `tls.key`. Raises NoCertificate."""
        self._tls = tls
        self._newest = self._former = self._read()
        self.context = self._newest.context
        self.context.sni_callback = self._use

    @property
    def fingerprints(self) -> tuple[bytes, ...]:
        """SHA-256 of the certificate, and of the one before: of pods that share a Secret, one has the new one first."""
        pair = (self._newest.fingerprint, self._former.fingerprint)
        return pair if pair[0] != pair[1] else pair[:1]

    def renew(self) -> None:
        """Read it again. Raises NoCertificate, and then the former one stays in use."""
        found = self._read()
        if found.fingerprint != self._newest.fingerprint:
            self._newest, self._former = found, self._newest

    async def keep_renewing(self) -> None:
        """Read it again now and then, for ever."""
        while True:
            await asyncio.sleep(RELOAD_EVERY_S)
            try:
                await asyncio.to_thread(self.renew)
            except NoCertificate as error:
                log.warning("%s; the former certificate stays in use", error)

    def _use(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._newest.context

    def _read(self) -> _Pair:
        # A context of its own each time: one that fails to load half-way has lost its key.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._tls / "tls.crt", self._tls / "tls.key")
            first, end, _ = (self._tls / "tls.crt").read_text().partition("-----END CERTIFICATE-----")
        except OSError as error:  # ssl.SSLError is one too
            raise NoCertificate(f"{self._tls}: no tls.crt and tls.key that fit together: {error}") from error
        leaf = ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN CERTIFICATE-----") :] + end)
        return _Pair(context, hashlib.sha256(leaf).digest())
