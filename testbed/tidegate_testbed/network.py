"""The testbed's network namespace, its bridge, its cgroup root, the claim on their name, and their removal."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from tidegate_testbed.instance import NODE_IP, SERVICES, Instance, TestbedError
from tidegate_testbed.processes import inside

BRIDGE = "tg0"
CGROUPS = Path("/sys/fs/cgroup")


def exists(instance: Instance) -> bool:
    return Path("/run/netns", instance.netns).exists()


def check_claim(instance: Instance) -> None:
    """Raises TestbedError where the name is another's: a testbed of another cache, or not a testbed's at all."""
    owner = instance.claimant()
    if owner == str(instance.state):
        return
    if owner:
        raise TestbedError(
            f"a testbed named {instance.name} is up with its state in {owner}: choose another --name, "
            f"or remove it with TIDEGATE_CACHE={Path(owner).parent.parent} tidegate-testbed down"
        )
    taken = [str(p) for p in (Path("/run/netns", instance.netns), *_cgroup_roots(instance)) if p.exists()]
    if taken:
        raise TestbedError(f"{taken[0]} exists and is not the testbed's: choose another --name")


def claim(instance: Instance) -> None:
    """Note that the namespace and the cgroup root of this name are ours, before they are made."""
    check_claim(instance)
    instance.claim.parent.mkdir(parents=True, exist_ok=True)
    instance.claim.write_text(str(instance.state))


def create(instance: Instance) -> None:
    """A namespace with a bridge at NODE_IP/16 that forwards; the host's own network stays as it is."""
    subprocess.run(["ip", "netns", "add", instance.netns], check=True)
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "addr", "add", f"{NODE_IP}/16", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        # For programs in the namespace: kube-proxy rewrites a Service's address only on its way somewhere.
        ["ip", "route", "add", SERVICES, "dev", BRIDGE],
        ["sysctl", "-qw", "net.ipv4.ip_forward=1"],
    ):
        subprocess.run([*inside(instance), *command], check=True)
    # A pod that reaches itself through a Service crosses the bridge twice. The switch exists where br_netfilter does.
    subprocess.run(
        [*inside(instance), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"], check=False, capture_output=True
    )
    _enable_controllers()
    for root in _cgroup_roots(instance):
        root.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # cgroup v1 starts them empty, and then no process may enter
            given, own = root.parent / name, root / name
            if given.exists() and own.exists() and not own.read_text().strip():
                own.write_text(given.read_text())


def _enable_controllers() -> None:
    """With cgroup v2 a folder has the controllers that its parent passes on, and the kubelet insists on all of them."""
    offered, passed_on = CGROUPS / "cgroup.controllers", CGROUPS / "cgroup.subtree_control"
    if offered.exists():
        for controller in set(offered.read_text().split()) - set(passed_on.read_text().split()):
            with contextlib.suppress(OSError):  # the kubelet says which it misses
                passed_on.write_text(f"+{controller}")


def delete(instance: Instance) -> None:
    """Remove the namespace, and with it its bridge, addresses and rules; and the cgroup root, leaves first."""
    if instance.claimant() != str(instance.state):
        return
    if exists(instance):
        subprocess.run(["ip", "netns", "del", instance.netns], check=True)
    for root in _cgroup_roots(instance):
        for folder in sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True) if root.exists() else ():
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            root.rmdir()


def remains(instance: Instance) -> list[str]:
    """What of the namespace and the cgroup root is still there."""
    return [str(p) for p in (Path("/run/netns", instance.netns), *_cgroup_roots(instance)) if p.exists()]


def _cgroup_roots(instance: Instance) -> list[Path]:
    hierarchies = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else sorted(CGROUPS.iterdir())
    return [h / instance.cgroup for h in hierarchies if h.is_dir() and not h.is_symlink()]
