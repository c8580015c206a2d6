"""The testbed's network namespace, its bridge, its cgroup root, and their removal."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from tidegate_testbed.instance import NODE_IP, Instance
from tidegate_testbed.processes import inside

BRIDGE = "tg0"
CGROUPS = Path("/sys/fs/cgroup")


def exists(instance: Instance) -> bool:
    return Path("/run/netns", instance.netns).exists()


def create(instance: Instance) -> None:
    """A namespace with a bridge at NODE_IP/16 that forwards; the host's own network stays as it is."""
    subprocess.run(["ip", "netns", "add", instance.netns], check=True)
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "addr", "add", f"{NODE_IP}/16", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        ["sysctl", "-qw", "net.ipv4.ip_forward=1"],
    ):
        subprocess.run([*inside(instance), *command], check=True)
    # A pod that reaches itself through a Service crosses the bridge twice. The switch exists where br_netfilter does.
    subprocess.run(
        [*inside(instance), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"], check=False, capture_output=True
    )


def delete(instance: Instance) -> None:
    """Remove the namespace; its bridge, addresses and rules go with it."""
    if exists(instance):
        subprocess.run(["ip", "netns", "del", instance.netns], check=True)


def _cgroup_roots(instance: Instance) -> list[Path]:
    hierarchies = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else sorted(CGROUPS.iterdir())
    return [h / instance.cgroup for h in hierarchies if h.is_dir() and not h.is_symlink()]


def create_cgroups(instance: Instance) -> None:
    """A root of its own in every controller, so that `down` tells these pods from any others on the machine."""
    for root in _cgroup_roots(instance):
        root.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # cgroup v1 starts them empty, and then no process may enter
            given, own = root.parent / name, root / name
            if given.exists() and own.exists() and not own.read_text().strip():
                own.write_text(given.read_text())


def delete_cgroups(instance: Instance) -> None:
    """Remove the roots, leaves first. Each is empty by now; one that is still busy stays for the next `down`."""
    for root in _cgroup_roots(instance):
        if root.exists():
            for folder in sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                root.rmdir()


def unmount(instance: Instance) -> None:
    """Take off every mount below the state folder, innermost first."""
    for _ in range(3):  # a lazy unmount can uncover another at the same place
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        ours = [m for m in mounts if m.startswith((f"{instance.state}/", f"{instance.image_store}/"))]
        for mount in sorted(ours, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        if not ours:
            return
