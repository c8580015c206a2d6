"""Where the demo runs: the testbed of this machine, or a cluster of the user's own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate_testbed.instance import Instance, instance
from tidegate_testbed.programs import Binaries

from tidegate_lab.demo import objects
from tidegate_lab.demo.shell import Command, Shell, Step, StepFailed

PROGRAMS = ("operator", "engine")
DOCKERFILES = {"operator": "operator/Dockerfile", "engine": "engine_image/Dockerfile"}


@dataclass(frozen=True, slots=True)
class Images:
    """Full names, with tags that follow the sources."""

    operator: str
    engine: str


class Place(Protocol):
    """A cluster, the programs to talk to it with, and how images and the model get there."""

    kubeconfig: Path

    @property
    def images(self) -> Images: ...
    @property
    def kubectl(self) -> Command: ...
    @property
    def helm(self) -> Command: ...
    @property
    def title(self) -> str: ...
    def prepare(self) -> None:
        """Start the cluster if it is ours, build the images, bring them there."""

    def put_model(self) -> None:
        """Make the claim with the model in it."""


class Testbed:
    """The Kubernetes that this repository starts on this machine."""

    __test__ = False

    def __init__(self, shell: Shell, root: Path) -> None:
        self._shell = shell
        self._instance: Instance = instance()
        self._program = root / "testbed" / "tidegate-testbed"
        self.kubeconfig = self._instance.kubeconfig
        self.images = _names(shell, "localhost/tidegate")

    @property
    def title(self) -> str:
        return "a Kubernetes of its own on this machine"

    @property
    def cgroup(self) -> str:
        """Of all that its kubelet starts, below the root of every hierarchy."""
        return self._instance.cgroup

    @property
    def kubectl(self) -> Command:
        return (Binaries(self._instance.cache).path("kubectl"), f"--kubeconfig={self.kubeconfig}")

    @property
    def helm(self) -> Command:
        return (Binaries(self._instance.cache).path("helm"), f"--kubeconfig={self.kubeconfig}")

    def prepare(self) -> None:
        # Debian's packages first and alone: two of apt-get cannot run side by side.
        self._shell.run(Step("Programs", [[self._program, "packages"]]))
        # Compiling Kubernetes keeps the processors busy, images the network and the disk.
        self._shell.run(Step("Kubernetes", [[self._program, "up"]]), self._build())
        self.load()

    def build(self) -> None:
        """Build the images, and nothing else."""
        self._shell.run(self._build())

    def load(self) -> None:
        """Bring the images into the node."""
        names = [self.images.operator, self.images.engine]
        self._shell.run(Step("Images into the node", [[self._program, "load", name] for name in names]))

    def put_model(self) -> None:
        apply(self._shell, self, objects.volume_of_folder(self._instance.models))

    def _build(self) -> Step:
        names = {"operator": self.images.operator, "engine": self.images.engine}
        commands: list[Command] = [[self._program, "base-image"]]
        commands += [[self._program, "image", names[p], DOCKERFILES[p], "."] for p in PROGRAMS]
        return Step("Images", commands)


class OwnCluster:
    """A cluster that the user named by DEMO_KUBECONFIG: kind, or any that can pull from IMAGE_REGISTRY.

    No test runs this; it is the same objects and the same load by other ways in.
    """

    def __init__(self, shell: Shell, kubeconfig: Path) -> None:
        self._shell = shell
        self.kubeconfig = kubeconfig
        self._builder = _program("docker", "podman")
        self._context = shell.read([*self.kubectl, "config", "current-context"]).strip()
        registry = os.environ.get("IMAGE_REGISTRY", "").rstrip("/")
        self._kind = self._context.startswith("kind-") and not registry
        if not self._kind and not registry:
            raise StepFailed(
                f"the nodes of {self._context!r} cannot see images of this machine: set IMAGE_REGISTRY to a registry "
                "that they pull from and that you may push to, as in IMAGE_REGISTRY=registry.example/tidegate"
            )
        self.images = _names(shell, registry or "localhost/tidegate")

    @property
    def title(self) -> str:
        return f"your cluster {self._context!r}"

    @property
    def kubectl(self) -> Command:
        return (_program("kubectl"), f"--kubeconfig={self.kubeconfig}")

    @property
    def helm(self) -> Command:
        return (_program("helm"), f"--kubeconfig={self.kubeconfig}")

    def prepare(self) -> None:
        names = {"operator": self.images.operator, "engine": self.images.engine}
        build: list[Command] = [[self._builder, "build", "-t", names[p], "-f", DOCKERFILES[p], "."] for p in PROGRAMS]
        if self._kind:
            cluster = self._context.removeprefix("kind-")
            bring: list[Command] = [
                [_program("kind"), "load", "docker-image", "--name", cluster, n] for n in names.values()
            ]
        else:
            bring = [[self._builder, "push", name] for name in names.values()]
        self._shell.run(Step("Images", build + bring))

    def put_model(self) -> None:
        apply(self._shell, self, [objects.claim_to_fill(), objects.filling_pod(self.images.operator)])
        inside = [*self.kubectl, "-n", objects.NAMESPACE]
        target = f"/models/{objects.MODEL_FILE}"
        write = f"test -s {target} || {{ cat > {target}.part && mv {target}.part {target}; }}"
        self._shell.read([*inside, "wait", "--for=condition=Ready", "pod/fill-models", "--timeout=180s"])
        command = " ".join(str(part) for part in inside) + f" exec -i fill-models -- sh -c '{write}'"
        model = instance().models / objects.MODEL_FILE
        self._shell.run(Step("The model into its claim", [["sh", "-c", f"{command} < '{model}'"]]))
        self._shell.read([*inside, "delete", "pod", "fill-models", "--wait"])


def apply(shell: Shell, place: Place, manifests: Sequence[objects.Manifest]) -> None:
    """Apply manifests as a user would, so that a second demo finds and keeps them."""
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    shell.read(
        [*place.kubectl, "apply", "--server-side", "--force-conflicts", "--field-manager=tidegate-demo", "-f", "-"],
        document,
    )


def choose(shell: Shell, root: Path) -> Place:
    """The cluster of DEMO_KUBECONFIG, else the testbed. Not that of KUBECONFIG: it may be a production one."""
    named = os.environ.get("DEMO_KUBECONFIG")
    if not named:
        return Testbed(shell, root)
    path = Path(named).expanduser()
    if not path.is_file():
        raise StepFailed(f"DEMO_KUBECONFIG={named}: there is no such file")
    return OwnCluster(shell, path)


def _names(shell: Shell, registry: str) -> Images:
    tags = {program: shell.read(["scripts/image_tag.sh", program]).strip() for program in PROGRAMS}
    return Images(*(f"{registry}/{program}:{tags[program]}" for program in PROGRAMS))


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    raise StepFailed(f"{' or '.join(names)} is not on PATH, and the demo on a cluster of yours needs it")
