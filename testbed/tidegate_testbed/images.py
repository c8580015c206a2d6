"""The images of the node's containerd: which it has, and bringing it those that it lacks, quickly."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tidegate_testbed import archives, buildah, storage
from tidegate_testbed.archives import Blob, Image
from tidegate_testbed.configuration import PAUSE_IMAGE
from tidegate_testbed.instance import Instance, TestbedError
from tidegate_testbed.programs import Binaries


def full_name(name: str) -> str:
    """As buildah and the kubelet know an image that was given a short name: `engine` is `localhost/engine:latest`."""
    first, _, rest = name.partition("/")
    if not rest or not ("." in first or ":" in first or first == "localhost"):
        name = f"localhost/{name}"
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


def load(instance: Instance, given: str) -> None:
    """Bring a built image into the node. Only layers that it lacks travel: a change of source is one small layer."""
    began = time.monotonic()
    name = full_name(given)
    stored = buildah.stored(instance, name)
    if not stored:
        raise TestbedError(
            f"there is no image {name}: build it first (tidegate-testbed image {name} DOCKERFILE CONTEXT)"
        )
    image = archives.image(name, stored.configuration, (Blob(one.digest, one.size) for one in stored.layers))
    with _alone(instance):
        if manifests(instance).get(name) == image.digest:
            print(f"  {name} is loaded already", flush=True)
            return
        unpacked = _snapshots(instance)
        lacking = [one for one in stored.layers if one.chain not in unpacked]
        root = buildah.root(instance)
        _import(instance, image, ((Blob(one.digest, one.size), storage.open_layer(root, one)) for one in lacking))
        _drop_packed(instance, {one.digest for one in lacking})
        _drop_unnamed(instance)
    moved = sum(one.size for one in lacking) / 1e6
    print(f"  loaded {name}: {moved:.1f} MB in {time.monotonic() - began:.1f} s", flush=True)


def load_archive(instance: Instance, archive: Path) -> None:
    """Bring an OCI or Docker archive into the node under the names it holds; nothing where it has them already."""
    held, had = archives.manifests(archive), manifests(instance)
    if held and all(had.get(name) == digest for name, digest in held.items()):
        print(f"  {', '.join(held)}: loaded already", flush=True)
        return
    _ctr(instance, "images", "import", "--local", str(archive))
    print(f"  loaded {', '.join(held) or archive}", flush=True)


def load_pause(instance: Instance, binaries: Binaries) -> None:
    """The sandbox image: one static program, made into an image here."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    layer = archives.program_layer(binaries.path("pause"))
    config = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    blob = Blob(archives.digest(layer), len(layer))
    image = archives.image(PAUSE_IMAGE, archives.program_configuration(architecture, config, layer), [blob])
    if manifests(instance).get(PAUSE_IMAGE) != image.digest:
        _import(instance, image, [(blob, io.BytesIO(layer))])


def loaded(instance: Instance) -> list[str]:
    """Names of the images that the node has."""
    return sorted(manifests(instance))


def manifests(instance: Instance) -> dict[str, str]:
    """Names of the images that the node has, and their manifests' digests."""
    return {name: digest for name, digest in _references(instance).items() if not name.startswith("sha256:")}


def answers(instance: Instance) -> bool:
    """Whether containerd is there to be asked."""
    try:
        _ctr(instance, "version")
    except TestbedError:
        return False
    return True


@contextmanager
def _alone(instance: Instance) -> Iterator[None]:
    """One load of an instance at a time."""
    with (instance.state.parent / f"{instance.name}.load.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _command(instance: Instance, *arguments: str) -> list[str]:
    if not instance.containerd_socket.exists():
        raise TestbedError(f"{instance.name} is not up: run `tidegate-testbed up` first")
    program = Binaries(instance.cache).path("ctr")
    return [str(program), f"--address={instance.containerd_socket}", "--namespace=k8s.io", *arguments]


def _ctr(instance: Instance, *arguments: str) -> str:
    done = subprocess.run(
        _command(instance, *arguments), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise TestbedError(f"containerd refused: {done.stderr.strip()[-600:]}")
    return done.stdout


def _references(instance: Instance) -> dict[str, str]:
    rows = [line.split() for line in _ctr(instance, "images", "ls").splitlines()[1:]]
    return {row[0]: row[2] for row in rows}


def _snapshots(instance: Instance) -> set[str]:
    """Digests of the layer stacks that the node has unpacked."""
    return {line.split()[0] for line in _ctr(instance, "snapshots", "ls").splitlines()[1:]}


def _import(instance: Instance, image: Image, layers: Iterable[tuple[Blob, IO[bytes]]]) -> None:
    command = _command(instance, "images", "import", "--local", "-")
    with tempfile.TemporaryFile() as trouble:
        importing = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=trouble)
        assert importing.stdin
        try:
            with importing.stdin as target:
                archives.write(target, image, layers)
        except BrokenPipeError:
            pass  # it has ended early, and says below why
        if importing.wait() != 0:
            trouble.seek(0)
            raise TestbedError(f"containerd refused {image.name}: {trouble.read().decode(errors='replace')[-600:]}")


def _drop_packed(instance: Instance, digests: set[str]) -> None:
    """Forget the tars of layers that are unpacked by now: gigabytes that no pod needs, and that buildah has."""
    if digests:
        _ctr(instance, "content", "rm", *sorted(digests))


def _drop_unnamed(instance: Instance) -> None:
    """Forget what had its name taken by a newer build: the kubelet, told to keep images, would keep it for good."""
    references = _references(instance)
    named = {digest for name, digest in references.items() if not name.startswith("sha256:")}
    stale = [name for name, digest in references.items() if digest not in named]
    if stale:
        _ctr(instance, "images", "rm", *stale)
