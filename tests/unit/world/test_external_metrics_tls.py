"""The certificate of the external metrics API: read at start, renewed without a restart, and refused in plain words."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from tidegate_operator.world import external_metrics
from tidegate_operator.world.external_metrics import NoCertificate
from tidegate_operator.world.service_metrics import ServiceMetrics


def make(folder: Path, host: str) -> str:
    """A certificate that is its own CA, as the chart makes it; returns its text."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
         "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (folder / "tls.crt").read_text()


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
    monkeypatch.setattr(external_metrics, "RELOAD_EVERY_S", 0.02)
    host = "tidegate-external-metrics.tidegate-system.svc"
    tls = tmp_path / "tls"
    old = make(tls, host)
    runner = await external_metrics.serve(ServiceMetrics(lambda: 0.0), 0, tls)
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


async def test_a_folder_without_a_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCertificate, match=r"no tls\.crt and tls\.key that fit together") as refused:
        await external_metrics.serve(ServiceMetrics(lambda: 0.0), 0, tmp_path)
    assert str(tmp_path) in str(refused.value)


async def test_two_halves_of_different_certificates_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", "a")
    make(tmp_path / "b", "b")
    shutil.copy(tmp_path / "b/tls.key", tmp_path / "a")
    with pytest.raises(NoCertificate, match="fit together"):
        await external_metrics.serve(ServiceMetrics(lambda: 0.0), 0, tmp_path / "a")
