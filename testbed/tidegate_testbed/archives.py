"""OCI archives: reading what one names, writing one that holds only what is wanted of it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

NAME = "io.containerd.image.name"
MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Blob:
    """Content by its digest."""

    digest: str
    size: int

    @property
    def path(self) -> str:
        """Where an archive has it."""
        return f"blobs/{self.digest.replace(':', '/')}"


@dataclass(frozen=True, slots=True)
class Image:
    """An image's name, its manifest and its configuration, which name the layers."""

    name: str
    manifest: bytes
    configuration: bytes

    @property
    def digest(self) -> str:
        """The manifest's digest, by which containerd knows the image."""
        return digest(self.manifest)


def digest(content: bytes) -> str:
    """The content's name."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def image(name: str, configuration: bytes, layers: Iterable[Blob]) -> Image:
    """An image of these uncompressed layers."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": _descriptor("config.v1+json", Blob(digest(configuration), len(configuration))),
        "layers": [_descriptor("layer.v1.tar", layer) for layer in layers],
    }
    return Image(name, json.dumps(manifest).encode(), configuration)


def _descriptor(media: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": f"{MEDIA}.{media}", "digest": blob.digest, "size": blob.size}


def write(target: IO[bytes], image: Image, layers: Iterable[tuple[Blob, IO[bytes]]]) -> None:
    """Stream an archive of the image that holds only these of its layers."""
    manifest = _descriptor("manifest.v1+json", Blob(image.digest, len(image.manifest)))
    manifest["annotations"] = {NAME: image.name, "org.opencontainers.image.ref.name": image.name}
    with tarfile.open(fileobj=target, mode="w|") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        for content in (image.manifest, image.configuration):
            _add(tar, Blob(digest(content), len(content)).path, content)
        for blob, layer in layers:
            tar.addfile(_entry(blob.path, blob.size), layer)


def program_layer(program: Path) -> bytes:
    """A layer with one program in its root."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), 0o755)
    return layer.getvalue()


def program_configuration(architecture: str, config: Mapping[str, Any], layer: bytes) -> bytes:
    """The configuration of an image of that one layer."""
    rootfs = {"type": "layers", "diff_ids": [digest(layer)]}
    return json.dumps({"architecture": architecture, "os": "linux", "config": config, "rootfs": rootfs}).encode()


def manifests(archive: Path) -> dict[str, str]:
    """Names and manifest digests of an OCI archive; empty where it is of another kind."""
    with tarfile.open(archive) as tar:
        try:
            index = tar.extractfile("index.json")
        except KeyError:
            return {}
        entries = json.load(index)["manifests"] if index else []
    return {e["annotations"][NAME]: e["digest"] for e in entries if NAME in e.get("annotations", {})}


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    tar.addfile(_entry(name, len(content), mode), io.BytesIO(content))


def _entry(name: str, size: int, mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry
