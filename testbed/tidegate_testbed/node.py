"""`up`, `down` and `status`: one control plane and one node, from nothing to Ready in seconds, and back to nothing."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed import buildah, configuration, images, mounts, network, pki, prerequisites
from tidegate_testbed.instance import NODE_IP, Instance, TestbedError
from tidegate_testbed.processes import Started, end, inside, owned, start, wait_for
from tidegate_testbed.programs import Binaries, build

COMPONENTS = (
    "etcd", "apiserver", "kcm", "scheduler", "containerd", "kubelet", "kube-proxy", "coredns", "forward",
)  # fmt: skip


@contextmanager
def _alone(instance: Instance) -> Iterator[None]:
    """One `up` or `down` of an instance at a time."""
    instance.state.parent.mkdir(parents=True, exist_ok=True)
    with (instance.state.parent / f"{instance.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kubectl(instance: Instance, *arguments: str) -> subprocess.CompletedProcess[str]:
    """kubectl as the administrator, from the host; the caller reads the exit code."""
    program = Binaries(instance.cache).path("kubectl")
    return subprocess.run(
        [str(program), f"--kubeconfig={instance.kubeconfig}", "--request-timeout=5s", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def all_run(instance: Instance) -> bool:
    """Whether every component runs."""
    return set(COMPONENTS) <= {p.component for p in owned(instance)}


def node_ready(instance: Instance) -> bool:
    """Whether the API server answers, and says that the node is Ready."""
    jsonpath = '{.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(instance, "get", "node", "node1", f"-o=jsonpath={jsonpath}").stdout == "True"


def up(instance: Instance) -> None:
    """Bring the testbed up, or say that it is. What a crashed `up` left is cleared first."""
    prerequisites.require_root()
    prerequisites.require_packages()
    binaries = Binaries(instance.cache)
    build(binaries)
    with _alone(instance):
        if all_run(instance) and _comes_ready(instance):
            print(f"  {instance.name} is up; KUBECONFIG={instance.kubeconfig}")
            return
        network.check_claim(instance)
        _clear(instance)
        prerequisites.require_port(instance)
        began = time.monotonic()
        try:
            _start(instance, binaries)
        except BaseException as error:
            _clear(instance, keep_logs=True)
            if isinstance(error, TestbedError):
                raise TestbedError(f"{error}\nThe logs are in {instance.state / 'log'}") from error
            raise
        print(f"  {instance.name} is up in {time.monotonic() - began:.0f} s; KUBECONFIG={instance.kubeconfig}")


def _comes_ready(instance: Instance) -> bool:
    """Patient with a busy machine: one answer that came late must not cost somebody's cluster."""
    try:
        wait_for("the node", lambda: node_ready(instance), 60)
    except TestbedError:
        return False
    return True


def _start(instance: Instance, binaries: Binaries) -> None:
    state, path = instance.state, binaries.folders()
    network.claim(instance)
    _write_files(instance)
    network.create(instance)

    def begin(component: str, command: list[str | Path], *entrance: str) -> Started:
        return start(instance, component, [*(entrance or inside(instance)), *command], path)

    def component(name: str, program: str, *flags: str) -> Started:
        return begin(name, [binaries.path(program), *flags])

    etcd = component("etcd", "etcd", *configuration.etcd_flags(instance))
    apiserver = component("apiserver", "kube-apiserver", *configuration.apiserver_flags(state / "pki"))
    containerd = begin(
        "containerd", [binaries.path("containerd"), "-c", state / "containerd.toml"], *inside(instance), *mounts.apart()
    )
    forwarder = Path(__file__).with_name("forward.py")
    forward = begin(
        "forward", [forwarder, instance.netns, str(instance.api_port), NODE_IP, "6443"], sys.executable, "-P"
    )
    wait_for("containerd", lambda: images.answers(instance), 60, [containerd])
    images.load_pause(instance, binaries)
    wait_for(
        "the API server",
        lambda: kubectl(instance, "get", "--raw", "/readyz").returncode == 0,
        120,
        [apiserver, etcd, forward],
    )
    kcm = component("kcm", "kube-controller-manager", *configuration.controller_manager_flags(instance))
    scheduler = component("scheduler", "kube-scheduler", *configuration.scheduler_flags(instance))
    # In containerd's mount namespace: each must see what the other mounts.
    kubelet = begin(
        "kubelet", [binaries.path("kubelet"), *configuration.kubelet_flags(instance)],
        "nsenter", f"--net=/run/netns/{instance.netns}", f"--mount=/proc/{containerd.pid}/ns/mnt", "--",
    )  # fmt: skip
    proxy = component("kube-proxy", "kube-proxy", f"--config={state}/kube-proxy.yaml")
    coredns = component("coredns", "coredns", "-conf", f"{state}/Corefile")
    wait_for("the node", lambda: node_ready(instance), 120, [kubelet, containerd, scheduler, proxy, coredns])
    # Pods are refused until their namespace has its default account.
    wait_for(
        "the default service account",
        lambda: kubectl(instance, "get", "serviceaccount", "default", "-n", "default").returncode == 0,
        60,
        [kcm],
    )
    _write_facts(instance, binaries)


def _write_files(instance: Instance) -> None:
    state = instance.state
    for folder in ("cni", "etcd", "kubelet", "log"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    instance.image_store.mkdir(parents=True, exist_ok=True)
    instance.models.mkdir(parents=True, exist_ok=True)
    pki.make(state / "pki")
    pki.write_kubeconfigs(instance)
    (state / "cni" / "10-tidegate.conflist").write_text(configuration.cni(instance))
    (state / "containerd.toml").write_text(configuration.containerd(instance))
    (state / "kubelet.yaml").write_text(configuration.kubelet(instance))
    (state / "kube-proxy.yaml").write_text(configuration.kube_proxy(instance))
    (state / "Corefile").write_text(configuration.corefile(instance))
    instance.resolv_conf.write_text(configuration.resolv_conf())


def _write_facts(instance: Instance, binaries: Binaries) -> None:
    facts = {
        "name": instance.name, "kubeconfig": str(instance.kubeconfig), "netns": instance.netns, "node_ip": NODE_IP,
        "dns": NODE_IP, "resolv_conf": str(instance.resolv_conf), "models": str(instance.models),
        "programs": {name: str(binaries.path(name)) for name in ("kubectl", "helm", "ctr")},
    }  # fmt: skip
    instance.facts.write_text(json.dumps(facts, indent=1) + "\n")


def down(instance: Instance, purge: bool = False) -> None:
    """Remove every process, mount, bridge, namespace and cgroup folder of the testbed; with `purge` its images too."""
    prerequisites.require_root()
    with _alone(instance):
        if instance.claimant():
            network.check_claim(instance)
        _clear(instance)
        buildah.unmount_abandoned(instance)
        if purge:
            shutil.rmtree(instance.image_store, ignore_errors=True)
    print(f"  {instance.name} is down")


def _clear(instance: Instance, keep_logs: bool = False) -> None:
    # First who would start a pod anew, then the pods, then who would report them, the API server before its etcd.
    end(instance, ["kubelet", "kcm", "scheduler", "kube-proxy", "coredns", "forward"])
    end(instance, ["shim", "pod"], grace=2)
    end(instance, ["containerd"])
    end(instance, ["apiserver"], grace=3)
    end(instance)
    stuck = mounts.unmount(mounts.of_node(instance))
    if stuck:  # a volume may be a folder of the user's: nothing is deleted through a mount
        raise TestbedError(f"these mounts do not come off; nothing below was deleted: {' '.join(stuck)}")
    if instance.claimant() == str(instance.state):
        # The kernel may hold a cgroup for an instant after its last process.
        wait_for(f"the removal of {network.remains(instance)}", lambda: _removed(instance), 10)
        instance.claim.unlink()
    # containerd's store remembers the containers; at the next `up` the kubelet, which knows no such pods, removes them.
    if instance.state.exists():
        for entry in instance.state.iterdir():
            if keep_logs and entry.name == "log":
                continue
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if not keep_logs:
            instance.state.rmdir()


def _removed(instance: Instance) -> bool:
    network.delete(instance)
    return not network.remains(instance)


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One line of `status`."""

    component: str
    pid: int | None
    memory_mib: int


def status(instance: Instance) -> list[ComponentStatus]:
    """Each component with its process id, or None where it does not run."""
    alive = {p.component: p for p in owned(instance)}
    return [
        ComponentStatus(name, alive[name].pid, alive[name].memory_kib // 1024)
        if name in alive
        else ComponentStatus(name, None, 0)
        for name in COMPONENTS
    ]


def execute(instance: Instance, command: list[str]) -> int:
    """Run a command inside the network namespace, where Services answer by name; returns its exit code."""
    if not network.exists(instance):
        raise TestbedError(f"{instance.name} is not up: run `tidegate-testbed up` first")
    return subprocess.run(
        [*inside(instance), *mounts.resolving(instance.resolv_conf), *command], check=False
    ).returncode
