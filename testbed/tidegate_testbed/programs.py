"""Kubernetes and its neighbours, built from their own Go modules at pinned versions, once, into the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed.instance import TestbedError
from tidegate_testbed.progress import run_watched

KUBERNETES = "v1.37.2"
SOURCES = Path(__file__).parent.parent / "programs"
VERSION_FLAGS = " ".join(
    f"-X k8s.io/component-base/version.{key}={value}"
    for key, value in (("gitVersion", KUBERNETES), ("gitMajor", "1"), ("gitMinor", "37"))
)


@dataclass(frozen=True, slots=True)
class Program:
    """One binary, and the Go module under `programs/` that pins it."""

    name: str
    module: str
    package: str


PROGRAMS = (
    # The API server first: its packages are most of the others', so what follows is quick.
    *(
        Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}")
        for name in ("kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl")
    ),
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("containerd", "containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    Program("containerd-shim-runc-v2", "containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
    Program("ctr", "containerd", "github.com/containerd/containerd/v2/cmd/ctr"),
    Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
    Program("coredns", "coredns", "github.com/coredns/coredns"),
    Program("pause", "pause", "."),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the built programs lie."""

    cache: Path

    def path(self, name: str) -> Path:
        """The binary's place; it exists after `build`."""
        program = next(p for p in PROGRAMS if p.name == name)
        return self.cache / "bin" / f"{program.module}-{pin(program.module)}" / name

    def missing(self) -> list[Program]:
        return [p for p in PROGRAMS if not self.path(p.name).exists()]

    def folders(self) -> str:
        """For PATH: containerd looks its shim up there."""
        return ":".join(sorted({str(self.path(p.name).parent) for p in PROGRAMS}))


def pin(module: str) -> str:
    """Ten hex digits that change with anything that a program is built from."""
    digest = hashlib.sha256(VERSION_FLAGS.encode())
    for path in sorted((SOURCES / module).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:10]


def build(binaries: Binaries, wanted: Sequence[str] = ()) -> None:
    """Build what the cache lacks; `wanted` narrows it down. Raises TestbedError with the compiler's last lines."""
    missing = [p for p in binaries.missing() if not wanted or p.name in wanted]
    if not missing:
        return
    if not shutil.which("go"):
        raise TestbedError(
            "go is not on PATH: install Go 1.26 or later; the testbed builds Kubernetes from its modules"
        )
    binaries.cache.mkdir(parents=True, exist_ok=True)
    with (binaries.cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would compile everything twice
        for number, program in enumerate(missing, 1):
            if not binaries.path(program.name).exists():
                _build_one(program, binaries.path(program.name), f"[{number}/{len(missing)}] {program.name}")


def _build_one(program: Program, target: Path, title: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.unfinished")
    flags = f"-s -w {VERSION_FLAGS if program.module == 'kubernetes' else ''}"
    environment = os.environ | {"GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=readonly -buildvcs=false".strip()}
    command = ["go", "build", "-o", str(unfinished), "-ldflags", flags, program.package]
    log = target.with_name(f"{target.name}.log")
    seconds = run_watched(f"building {title}", command, log, environment, SOURCES / program.module)
    unfinished.rename(target)
    print(f"  built {title} in {seconds:.0f} s", flush=True)
