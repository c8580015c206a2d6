"""Certificates and kubeconfigs of one cluster, made by openssl anew at every `up`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed.instance import NODE_IP, Instance

NAMES = f"subjectAltName=IP:127.0.0.1,IP:10.96.0.1,IP:{NODE_IP},DNS:localhost,DNS:node1,DNS:kubernetes.default.svc"

CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")
"""Made in a millisecond where an RSA key takes a tenth of a second or more."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate's file name and whom it speaks for."""

    name: str
    subject: str


IDENTITIES = (
    Identity("apiserver", "/CN=kube-apiserver"),
    Identity("kubelet-server", "/CN=node1"),
    Identity("front-proxy", "/CN=front-proxy-client"),
    Identity("admin", "/O=system:masters/CN=admin"),
    Identity("kcm", "/CN=system:kube-controller-manager"),
    Identity("scheduler", "/CN=system:kube-scheduler"),
    Identity("node1", "/O=system:nodes/CN=system:node:node1"),
)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make(folder: Path) -> None:
    """Write ca, sa (for service accounts' tokens) and every identity's key and certificate into the folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca, key = folder / "ca.crt", folder / "ca.key"
    _openssl("genpkey", "-algorithm", "EC", *CURVE, "-out", folder / "sa.key")
    _openssl("pkey", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")
    _openssl("req", "-x509", "-newkey", "ec", *CURVE, "-nodes", "-keyout", key, "-out", ca,
             "-subj", "/CN=tidegate-testbed-ca", "-days", "365")  # fmt: skip
    extensions = folder / "extensions"
    extensions.write_text(NAMES)
    for identity in IDENTITIES:
        request, own = folder / f"{identity.name}.csr", folder / f"{identity.name}.key"
        _openssl("req", "-newkey", "ec", *CURVE, "-nodes", "-keyout", own, "-out", request, "-subj", identity.subject)
        _openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", key, "-CAcreateserial", "-days", "365",
                 "-out", folder / f"{identity.name}.crt", "-extfile", extensions)  # fmt: skip


def write_kubeconfigs(instance: Instance) -> None:
    """One a component for inside the namespace, and the administrator's for the host."""
    for name in ("admin", "kcm", "scheduler", "node1"):
        (instance.state / f"{name}.kubeconfig").write_text(_kubeconfig(instance, name, "https://127.0.0.1:6443"))
    instance.kubeconfig.write_text(_kubeconfig(instance, "admin", f"https://127.0.0.1:{instance.api_port}"))
    instance.kubeconfig.chmod(0o600)


def _kubeconfig(instance: Instance, identity: str, server: str) -> str:
    pki = instance.state / "pki"
    return f"""apiVersion: v1
kind: Config
clusters:
- name: {instance.name}
  cluster: {{server: "{server}", certificate-authority: "{pki}/ca.crt"}}
users:
- name: {identity}
  user: {{client-certificate: "{pki}/{identity}.crt", client-key: "{pki}/{identity}.key"}}
contexts:
- name: {instance.name}
  context: {{cluster: {instance.name}, user: {identity}}}
current-context: {instance.name}
"""
