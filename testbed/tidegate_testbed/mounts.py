"""A mount namespace for containerd, the kubelet and the pods: what they mount never shows on the host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tidegate_testbed.instance import Instance

FIXED_FOLDERS = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
"""Where runc, CNI and the kubelet write whatever they are told. Two testbeds, or a testbed and a person's own kubelet,
would take each other's sockets there, so each testbed has empty ones of its own, in memory."""


def apart() -> list[str]:
    """The command prefix that makes the mount namespace. Mounts of the host still arrive in it, none goes back."""
    for folder in FIXED_FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
    script = " && ".join(
        # Shared within, or a volume's mountPropagation would be refused.
        ["mount --make-rshared /", *(f"mount -t tmpfs -o mode=0755 tidegate {f}" for f in FIXED_FOLDERS), 'exec "$@"']
    )
    return ["unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", script, "sh"]


def resolving(resolv_conf: Path) -> list[str]:
    """The command prefix under which names of the cluster resolve: its own file in the place of /etc/resolv.conf."""
    script = f'mount --bind "{resolv_conf}" "$(readlink -f /etc/resolv.conf)" && exec "$@"'
    return ["unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", script, "sh"]


def below(folders: list[Path], table: str) -> list[str]:
    """The mount points below these folders in a table like /proc/mounts, innermost first."""
    points = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split()[1]) for line in table.splitlines()]
    return sorted((p for p in points if any(Path(p).is_relative_to(f) for f in folders)), reverse=True)


def unmount(folders: list[Path]) -> list[str]:
    """Take off every mount below the folders; returns those that stay."""
    for _ in range(3):  # a lazy unmount can uncover another at the same place
        for point in below(folders, Path("/proc/mounts").read_text()):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    return below(folders, Path("/proc/mounts").read_text())


def of_node(instance: Instance) -> list[Path]:
    """The folders where this testbed's containerd and kubelet mount."""
    return [instance.state, instance.image_store]
