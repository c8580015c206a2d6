"""What the testbed needs of the machine: root, Debian's packages, a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

from tidegate_testbed.instance import Instance, TestbedError

PACKAGES = {
    "runc": "runc", "nft": "nftables", "ip": "iproute2", "conntrack": "conntrack", "openssl": "openssl",
    "nsenter": "util-linux", "sysctl": "procps", "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah", "debootstrap": "debootstrap",
}  # fmt: skip
"""A program, or a file, and the Debian package that has it."""


def require_root() -> None:
    """Raises TestbedError for any other user."""
    if os.geteuid() != 0:
        raise TestbedError("the testbed needs root (namespaces, mounts, cgroups): run it as root or by sudo -E")


def require_packages() -> None:
    """Install what is missing. Raises TestbedError where that cannot be."""
    missing = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise TestbedError(f"missing, and there is no apt-get to install them: {' '.join(missing)}")
    print(f"  installing {' '.join(missing)}", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TestbedError(
                f"`{' '.join(command)}` failed; install {' '.join(missing)} yourself and try again: "
                f"{done.stderr.strip()[-500:]}"
            )


def require_port(instance: Instance) -> None:
    """Raises TestbedError where another program listens on the API server's port of the host."""
    try:
        socket.create_server(("127.0.0.1", instance.api_port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise TestbedError(
            f"port {instance.api_port} of 127.0.0.1, for the API server, cannot be had ({reason}): "
            f"end what listens there (`ss -ltnp sport = :{instance.api_port}` names it), or choose another --name"
        ) from error
