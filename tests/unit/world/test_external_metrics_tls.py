"""The certificate of the external metrics API: read at start, renewed without a restart, and refused in plain words."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from own_certificate import make
from tidegate_operator.world import certificate, external_metrics
from tidegate_operator.world.certificate import Certificate, NoCertificate
from tidegate_operator.world.relay import Relay
from tidegate_operator.world.service_metrics import ServiceMetrics


async def answered(port: int, certificate: str, host: str) -> bool:
    """Whether a client that trusts only this certificate gets an answer; the API server is one."""
    trust = ssl.create_default_context(cadata=certificate)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=host)
    except ssl.SSLCertVerificationError:
        return False
    writer.write(b"GET /apis/external.metrics.k8s.io/v1beta1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    first = await reader.readline()
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return b" 200 " in first


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "RELOAD_EVERY_S", 0.02)
    host = "tidegate-external-metrics.tidegate-system.svc"
    tls = tmp_path / "tls"
    old = make(tls, host)
    source = external_metrics.Source(ServiceMetrics(lambda: 0.0), lambda: True, Relay("a", lambda: None, lambda: ()))
    runner = await external_metrics.serve(source, 0, Certificate(tls))
    try:
        port = next(address[1] for address in runner.addresses if "." in address[0])
        assert await answered(port, old, host)
        new = make(tmp_path / "new", host)
        shutil.copy(tmp_path / "new/tls.crt", tls)  # until the key follows, the two do not fit together
        await asyncio.sleep(0.1)
        assert await answered(port, old, host), "the former one stays in use"
        shutil.copy(tmp_path / "new/tls.key", tls)
        async with asyncio.timeout(20):
            while not await answered(port, new, host):
                pass
        assert not await answered(port, old, host)
    finally:
        await runner.cleanup()


def test_a_folder_without_a_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCertificate, match=r"no tls\.crt and tls\.key that fit together") as refused:
        Certificate(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_two_halves_of_different_certificates_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", "a")
    make(tmp_path / "b", "b")
    shutil.copy(tmp_path / "b/tls.key", tmp_path / "a")
    with pytest.raises(NoCertificate, match="fit together"):
        Certificate(tmp_path / "a")
