"""Reading an image out of buildah's storage, layer by layer and as it is.

`buildah push` compresses every layer anew at every push, minutes for an image with PyTorch. The storage records each
layer's tar but for the files' contents (in the format tar-split), so it can be had again byte for byte.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tidegate_testbed.instance import TestbedError

SEGMENT = 2
"""tar-split's mark of bytes that are recorded; any other entry stands for a file's content."""
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in the storage: the digest and the size of its tar, and the digest of the whole stack up to it."""

    identifier: str
    digest: str
    size: int
    chain: str


@dataclass(frozen=True, slots=True)
class Stored:
    """An image in the storage: its configuration, byte for byte, and its layers from the lowest."""

    configuration: bytes
    layers: tuple[Layer, ...]


def read(root: Path, image: str, configuration: bytes) -> Stored:
    """The image of that id. Raises TestbedError where the storage does not say what the configuration does."""
    images = {i["id"]: i for i in json.loads((root / "overlay-images" / "images.json").read_text())}
    below = {entry["id"]: entry for entry in json.loads((root / "overlay-layers" / "layers.json").read_text())}
    found = []
    identifier = images[image].get("layer", "")
    while identifier:
        found.append(below[identifier])
        identifier = below[identifier].get("parent", "")
    found.reverse()
    diffs = json.loads(configuration)["rootfs"]["diff_ids"]
    if [entry.get("diff-digest") for entry in found] != diffs:
        raise TestbedError(f"buildah's storage in {root} is not as it should be: remove the folder and build again")
    chains = chain_ids(diffs)
    return Stored(
        configuration,
        tuple(Layer(e["id"], e["diff-digest"], e["diff-size"], c) for e, c in zip(found, chains, strict=True)),
    )


def superseded(root: Path) -> list[str]:
    """Ids of unnamed images that no named one is built on: layers that earlier sources or requirements had."""
    images = json.loads((root / "overlay-images" / "images.json").read_text())
    layers = json.loads((root / "overlay-layers" / "layers.json").read_text())
    parents = {entry["id"]: entry.get("parent", "") for entry in layers}
    used = set()
    for image in images:
        layer = image.get("layer", "") if image.get("names") else ""
        while layer and layer not in used:
            used.add(layer)
            layer = parents.get(layer, "")
    return [image["id"] for image in images if not image.get("names") and image.get("layer", "") not in used]


def chain_ids(diffs: list[str]) -> list[str]:
    """What containerd calls the unpacked stack of the first, the first two, … layers."""
    chains: list[str] = []
    for diff in diffs:
        both = f"{chains[-1]} {diff}".encode() if chains else b""
        chains.append(f"sha256:{hashlib.sha256(both).hexdigest()}" if both else diff)
    return chains


def open_layer(root: Path, layer: Layer) -> IO[bytes]:
    """The layer's tar."""
    return io.BufferedReader(_Stream(_chunks(root, layer.identifier)), CHUNK)


def _chunks(root: Path, identifier: str) -> Iterator[bytes]:
    content = root / "overlay" / identifier / "diff"
    with gzip.open(root / "overlay-layers" / f"{identifier}.tar-split.gz") as entries:
        for line in entries:
            entry = json.loads(line)
            if entry["type"] == SEGMENT:
                yield base64.b64decode(entry["payload"])
            elif entry.get("size"):
                name = base64.b64decode(entry["name_raw"]) if "name_raw" in entry else entry["name"].encode()
                with (content / name.decode(errors="surrogateescape").lstrip("/")).open("rb") as file:
                    while chunk := file.read(CHUNK):
                        yield chunk


class _Stream(io.RawIOBase):
    """What a generator yields, as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
