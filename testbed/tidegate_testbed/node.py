"""`up`, `down` and `status`: one control plane and one node, from nothing to Ready in seconds, and back to nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed import configuration, images, network, pki
from tidegate_testbed.instance import NODE_IP, Instance, TestbedError
from tidegate_testbed.processes import end, inside, owned, start, wait_for
from tidegate_testbed.programs import Binaries, build

COMPONENTS = (
    "etcd", "apiserver", "kcm", "scheduler", "containerd", "kubelet", "kube-proxy", "coredns", "forward",
)  # fmt: skip
APT = {
    "runc": "runc", "nft": "nftables", "ip": "iproute2", "iptables": "iptables", "conntrack": "conntrack",
    "openssl": "openssl", "nsenter": "util-linux", "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah", "debootstrap": "debootstrap",
}  # fmt: skip


@contextmanager
def _alone(instance: Instance) -> Iterator[None]:
    """One `up` or `down` of an instance at a time."""
    instance.state.parent.mkdir(parents=True, exist_ok=True)
    with (instance.state.parent / f"{instance.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def require() -> None:
    """Root, and Debian's packages; what is missing is installed. Raises TestbedError where it cannot be."""
    if os.geteuid() != 0:
        raise TestbedError("the testbed needs root (namespaces, mounts, cgroups): run it as root or by sudo -E")
    missing = sorted({package for program, package in APT.items() if not shutil.which(program)})
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise TestbedError(f"these packages are missing and there is no apt-get: {' '.join(missing)}")
    print(f"  installing {' '.join(missing)}", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TestbedError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def kubectl(instance: Instance, *arguments: str) -> subprocess.CompletedProcess[str]:
    """kubectl as the administrator, from the host; the caller reads the exit code."""
    program = Binaries(instance.cache).path("kubectl")
    return subprocess.run(
        [str(program), f"--kubeconfig={instance.kubeconfig}", "--request-timeout=5s", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def ready(instance: Instance) -> bool:
    """Whether every component runs and the node says Ready."""
    running = {p.component for p in owned(instance)}
    return set(COMPONENTS) <= running and _node_ready(instance)


def _node_ready(instance: Instance) -> bool:
    jsonpath = '{.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(instance, "get", "node", "node1", f"-o=jsonpath={jsonpath}").stdout == "True"


def up(instance: Instance) -> None:
    """Bring the testbed up, or say that it is. What a crashed `up` left is cleared first."""
    require()
    binaries = Binaries(instance.cache)
    build(binaries)
    with _alone(instance):
        if ready(instance):
            print(f"  {instance.name} is up; KUBECONFIG={instance.kubeconfig}")
            return
        _clear(instance)
        began = time.monotonic()
        try:
            _start(instance, binaries)
        except BaseException:
            if "--keep" not in sys.argv:
                _clear(instance, keep_logs=True)
            raise
        print(f"  {instance.name} is up in {time.monotonic() - began:.0f} s; KUBECONFIG={instance.kubeconfig}")


def _start(instance: Instance, binaries: Binaries) -> None:
    state, path = instance.state, binaries.folders()
    for folder in ("cni", "etcd", "kubelet", "log"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    instance.image_store.mkdir(parents=True, exist_ok=True)
    instance.models.mkdir(parents=True, exist_ok=True)
    pki.make(state / "pki")
    pki.write_kubeconfigs(instance)
    (state / "cni" / "10-tidegate.conflist").write_text(configuration.cni().replace("/var/lib/cni", f"{state}/ipam"))
    (state / "containerd.toml").write_text(configuration.containerd(instance))
    (state / "kubelet.yaml").write_text(configuration.kubelet(instance))
    (state / "kube-proxy.yaml").write_text(configuration.kube_proxy(instance))
    (state / "Corefile").write_text(configuration.corefile(instance))
    network.create(instance)
    network.create_cgroups(instance)

    def begin(component: str, program: str, *flags: str) -> None:
        start(instance, component, [binaries.path(program), *flags], path)

    begin("etcd", "etcd", *configuration.etcd_flags(instance))
    begin("apiserver", "kube-apiserver", *configuration.apiserver_flags(state / "pki"))
    begin("containerd", "containerd", "-c", f"{state}/containerd.toml")
    start(
        instance, "forward",
        [sys.executable, Path(__file__).parent / "forward.py", instance.netns, str(instance.api_port), NODE_IP, "6443"],
        path, inside_netns=False,
    )  # fmt: skip
    wait_for(
        "the API server",
        lambda: kubectl(instance, "get", "--raw", "/readyz").returncode == 0,
        120,
        state / "log" / "apiserver.log",
    )
    begin("kcm", "kube-controller-manager", *configuration.controller_manager_flags(instance))
    begin("scheduler", "kube-scheduler", f"--kubeconfig={state}/scheduler.kubeconfig", "--leader-elect=false")
    wait_for("containerd", instance.containerd_socket.exists, 60, state / "log" / "containerd.log")
    images.load_pause(instance, binaries)
    begin(
        "kubelet", "kubelet", f"--config={state}/kubelet.yaml", f"--kubeconfig={state}/node1.kubeconfig",
        f"--root-dir={state}/kubelet", "--hostname-override=node1", f"--node-ip={NODE_IP}",
    )  # fmt: skip
    begin("kube-proxy", "kube-proxy", f"--config={state}/kube-proxy.yaml")
    begin("coredns", "coredns", "-conf", f"{state}/Corefile")
    wait_for("the node", lambda: _node_ready(instance), 120, state / "log" / "kubelet.log")
    # Pods are refused until their namespace has its default account.
    wait_for(
        "the default service account",
        lambda: kubectl(instance, "get", "serviceaccount", "default", "-n", "default").returncode == 0,
        60,
        state / "log" / "kcm.log",
    )
    facts = {
        "name": instance.name, "kubeconfig": str(instance.kubeconfig), "netns": instance.netns, "node_ip": NODE_IP,
        "dns": NODE_IP, "models": str(instance.models),
        "programs": {name: str(binaries.path(name)) for name in ("kubectl", "helm", "ctr")},
    }  # fmt: skip
    (state / "facts.json").write_text(json.dumps(facts, indent=1))


def down(instance: Instance, purge: bool = False) -> None:
    """Remove every process, mount, bridge, namespace and cgroup folder of the testbed; with `purge` its images too."""
    if os.geteuid() != 0:
        raise TestbedError("the testbed needs root: run `down` as the user who ran `up`")
    with _alone(instance):
        _clear(instance)
        if purge:
            shutil.rmtree(instance.image_store, ignore_errors=True)
            shutil.rmtree(images.layouts(instance), ignore_errors=True)
    print(f"  {instance.name} is down")


def _clear(instance: Instance, keep_logs: bool = False) -> None:
    # First who would start a pod anew, then the pods, then who would report them, the API server before its etcd.
    end(instance, ["kubelet", "kcm", "scheduler", "kube-proxy", "coredns", "forward"])
    end(instance, ["shim", "pod"], grace=2)
    end(instance, ["containerd"])
    end(instance, ["apiserver"], grace=3)
    end(instance, ["etcd", "?"])
    network.unmount(instance)
    network.delete(instance)
    network.delete_cgroups(instance)
    # containerd remembers containers and their snapshots in its store; without their state they are only in the way.
    if instance.state.exists():
        for entry in instance.state.iterdir():
            if keep_logs and entry.name == "log":
                continue
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
        if not keep_logs:
            instance.state.rmdir()


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    component: str
    pid: int | None
    memory_mib: int


def status(instance: Instance) -> list[ComponentStatus]:
    """Each component with its process id, or None where it does not run."""
    alive = owned(instance)
    rows = []
    for component in COMPONENTS:
        process = next((p for p in alive if p.component == component), None)
        rows.append(
            ComponentStatus(component, process.pid if process else None, process.memory_kib // 1024 if process else 0)
        )
    return rows


def execute(instance: Instance, command: list[str]) -> int:
    """Run a command inside the namespace, where Services and pods answer; returns its exit code."""
    if not network.exists(instance):
        raise TestbedError(f"{instance.name} is not up: run `tidegate-testbed up` first")
    return subprocess.run([*inside(instance), *command], check=False).returncode
