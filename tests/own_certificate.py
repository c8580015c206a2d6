"""A certificate that is its own CA, as the chart makes it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make(folder: Path, host: str = "tidegate-external-metrics.tidegate-system.svc") -> str:
    """Write `tls.crt` and `tls.key` into the folder; returns the certificate's text."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
         "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (folder / "tls.crt").read_text()
