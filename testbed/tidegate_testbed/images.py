"""Images without Docker: a Debian base by debootstrap, Dockerfiles by buildah, and quick loads into containerd."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed.configuration import PAUSE_IMAGE
from tidegate_testbed.instance import Instance, TestbedError
from tidegate_testbed.programs import Binaries

BASE = "docker.io/library/debian:bookworm-slim"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True)
class Blob:
    """Content of an OCI layout, by its digest."""

    digest: str
    size: int


def layouts(instance: Instance) -> Path:
    """OCI layouts by image; what containerd has as well is a hard link, so it costs no disk twice."""
    return instance.cache / "layouts"


def buildah(instance: Instance, *arguments: str, quiet: bool = True, **variables: str) -> str:
    """Run buildah on the testbed's own storage; returns its output. Raises TestbedError with its last lines."""
    storage = ["--root", f"{instance.cache}/buildah", "--runroot", "/run/tidegate-buildah", "--storage-driver", "overlay"]
    environment = os.environ | {"BUILDAH_ISOLATION": "chroot", "BUILDAH_RUNTIME": "runc"} | variables
    done = subprocess.run(
        ["buildah", *storage, *arguments], env=environment, stdin=subprocess.DEVNULL, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None,
    )  # fmt: skip
    if done.returncode != 0:
        tail = "\n".join(((done.stderr or "") + done.stdout).strip().splitlines()[-15:])
        raise TestbedError(f"buildah {arguments[0]} failed:\n{tail}")
    return done.stdout.strip()


def has_image(instance: Instance, name: str) -> bool:
    listed = buildah(instance, "images", "--format", "{{.Name}}:{{.Tag}}")
    return name in listed.splitlines()


def base_image(instance: Instance) -> None:
    """Make the image that the Dockerfiles start from: Debian's smallest root with Python in it; once."""
    if has_image(instance, BASE):
        return
    began = time.monotonic()
    print("  making the Debian base image", flush=True)
    root = instance.cache / "debootstrap"
    subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=True)
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates,python3,python3-venv", "bookworm", str(root)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise TestbedError(f"debootstrap failed: {done.stdout.strip()[-600:]} {done.stderr.strip()[-300:]}")
    container = buildah(instance, "from", "scratch")
    buildah(instance, "add", "-q", container, f"{root}/", "/")
    buildah(instance, "config", "--cmd", "bash", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    buildah(instance, "commit", "-q", "--rm", container, BASE)
    subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=True)
    print(f"  made the Debian base image in {time.monotonic() - began:.0f} s", flush=True)


def build_image(instance: Instance, name: str, dockerfile: Path, context: Path, arguments: Sequence[str] = ()) -> None:
    """Build an unchanged Dockerfile, its layers cached; downloads go to a cache on this machine, not into the image."""
    base_image(instance)
    began = time.monotonic()
    downloads = instance.cache / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    volumes = [f"--volume={downloads}:/root/.cache"]
    if os.environ.get("SSL_CERT_FILE"):  # a network with an authority of its own: lend its certificates to the build
        pip = instance.cache / "pip.conf"
        pip.write_text(f"[global]\ncert = {AUTHORITIES}\n")
        volumes += [f"--volume={AUTHORITIES}:{AUTHORITIES}:ro", f"--volume={pip}:/etc/pip.conf:ro"]
    buildah(
        instance, "build", "--layers", "--pull-never", "--isolation", "chroot", "--format", "oci", *volumes,
        *(f"--build-arg={a}" for a in arguments), "-t", name, "-f", str(dockerfile), str(context),
        TMPDIR=str(downloads),
    )  # fmt: skip
    print(f"  built {name} in {time.monotonic() - began:.0f} s", flush=True)


def load(instance: Instance, name: str) -> None:
    """Bring an image into the node's containerd. Only the blobs that it lacks travel: a source change is one layer."""
    began = time.monotonic()
    repository = name.rsplit(":", 1)[0]
    layout = layouts(instance) / repository.replace("/", "_")
    (layout / "blobs").mkdir(parents=True, exist_ok=True)
    _borrow_blobs(instance, layout)
    for stale in ("index.json", "oci-layout"):
        (layout / stale).unlink(missing_ok=True)
    buildah(instance, "push", "-q", "--disable-compression", "--format", "oci", name, f"oci:{layout}:{name}",
            TMPDIR=str(instance.cache))  # fmt: skip
    index = json.loads((layout / "index.json").read_text())
    manifest = _referenced(layout, index)
    lacking = [b for b in manifest if not _content(instance, b.digest).exists()]
    index["manifests"][0]["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    _import(instance, layout, index, lacking)
    _link_to_containerd(instance, layout, manifest)
    moved = sum(b.size for b in lacking) / 1e6
    print(f"  loaded {name}: {moved:.0f} MB in {time.monotonic() - began:.0f} s", flush=True)


def load_archive(instance: Instance, archive: Path) -> None:
    """Bring an OCI or Docker archive into the node's containerd under the names it holds."""
    _ctr(instance, "images", "import", "--local", str(archive))


def loaded(instance: Instance) -> list[str]:
    """Names of the images that the node has."""
    return sorted(n for n in _ctr(instance, "images", "ls", "-q").split() if not n.startswith("sha256:"))


def _ctr(instance: Instance, *arguments: str, stdin: subprocess.Popen[bytes] | None = None) -> str:
    program = Binaries(instance.cache).path("ctr")
    if not instance.containerd_socket.exists():
        raise TestbedError(f"{instance.name} is not up: run `tidegate-testbed up` first")
    done = subprocess.run(
        [str(program), f"--address={instance.containerd_socket}", "--namespace=k8s.io", *arguments],
        capture_output=True, text=True, check=False, stdin=stdin.stdout if stdin else subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        raise TestbedError(f"containerd refused: {done.stderr.strip()[-600:]}")
    return done.stdout


def _content(instance: Instance, digest: str) -> Path:
    algorithm, _, value = digest.partition(":")
    return instance.image_store / "io.containerd.content.v1.content" / "blobs" / algorithm / value


def _borrow_blobs(instance: Instance, layout: Path) -> None:
    """Show containerd's own blobs in the layout, so that buildah writes none of them again."""
    store = instance.image_store / "io.containerd.content.v1.content" / "blobs" / "sha256"
    target = layout / "blobs" / "sha256"
    target.mkdir(exist_ok=True)
    for blob in store.iterdir() if store.exists() else ():
        if not (target / blob.name).exists():
            (target / blob.name).hardlink_to(blob)


def _link_to_containerd(instance: Instance, layout: Path, blobs: Sequence[Blob]) -> None:
    wanted = {b.digest.partition(":")[2] for b in blobs}
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.name in wanted and _content(instance, f"sha256:{blob.name}").exists():
            blob.unlink()  # containerd keeps it; the next load borrows it again
        elif blob.name not in wanted:
            blob.unlink()


def _referenced(layout: Path, index: dict[str, list[dict[str, object]]]) -> list[Blob]:
    entry = index["manifests"][0]
    digest = str(entry["digest"])
    manifest = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
    below = [manifest["config"], *manifest["layers"]]
    return [Blob(digest, int(str(entry["size"]))), *(Blob(b["digest"], b["size"]) for b in below)]


def _import(instance: Instance, layout: Path, index: dict[str, list[dict[str, object]]], blobs: Sequence[Blob]) -> None:
    archive = layout / "import.tar"
    with tarfile.open(archive, mode="w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for blob in blobs:
            relative = f"blobs/{blob.digest.replace(':', '/')}"
            tar.add(layout / relative, relative)
    try:
        _ctr(instance, "images", "import", "--local", str(archive))
    finally:
        archive.unlink()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o644
    tar.addfile(entry, io.BytesIO(content))


def load_pause(instance: Instance, binaries: Binaries) -> None:
    """The sandbox image: one static program in an archive made here."""
    if PAUSE_IMAGE in loaded(instance):
        return
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("pause")
        program = binaries.path("pause").read_bytes()
        entry.size, entry.mode = len(program), 0o755
        tar.addfile(entry, io.BytesIO(program))
    blobs: dict[str, bytes] = {}

    def keep(content: bytes, media: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": f"sha256:{digest}", "size": len(content)}

    layer_entry = keep(layer.getvalue(), "layer.v1.tar")
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64", "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]},
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": keep(json.dumps(config).encode(), "config.v1+json"), "layers": [layer_entry],
    }  # fmt: skip
    entry_of_index = keep(json.dumps(manifest).encode(), "manifest.v1+json") | {
        "annotations": {"io.containerd.image.name": PAUSE_IMAGE}
    }
    archive = instance.state / "pause.tar"
    with tarfile.open(archive, mode="w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry_of_index]}).encode())
        for digest, content in blobs.items():
            _add(tar, f"blobs/sha256/{digest}", content)
    load_archive(instance, archive)
    archive.unlink()
