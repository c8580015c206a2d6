"""GGUF files (ggml/docs/gguf.md, versions 2 and 3): metadata and where each tensor lies, from a memory map.

Every length is checked against the file's size before it is used, so a corrupt file costs an error and nothing else.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.files.ggml_types import GGML_TYPES, GGMLType
from tidegate_engine.files.mapped import map_file

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MAX_NAME = 65535
_AGAIN = "download the file again"


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is in torch's order: the last dimension is contiguous."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    data: memoryview
    """its bytes, inside the mapped file"""


class Metadata(Mapping[str, Any]):
    """Key to int, float, bool, str or list of these. Decoded when asked for, since token lists are long."""

    def __init__(self, reader: _Reader, places: dict[str, tuple[int, int]]) -> None:
        self._reader = reader
        self._places = places

    def __getitem__(self, key: str) -> Any:
        kind, offset = self._places[key]
        return self._reader.decode(kind, offset)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """What a GGUF file holds."""

    path: Path
    metadata: Metadata
    tensors: dict[str, GGUFTensor]


def read_gguf(path: Path) -> GGUFFile:
    """Parse a file's header; tensors stay on disk until touched. Raises ModelFileError."""
    reader = _Reader(path, map_file(path))
    if bytes(reader.view[:4]) != b"GGUF":
        reader.fail("does not begin with GGUF", "give a GGUF file or a Hugging Face folder")
    offset, (version,) = 8, reader.unpack("I", 4)
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        what = "is big-endian" if swapped in (2, 3) else f"has GGUF version {version}"
        reader.fail(what, "convert it to little-endian GGUF version 3")
    tensor_count, pair_count = reader.unpack("QQ", offset)
    places, offset = _read_places(reader, pair_count, 24)
    metadata = Metadata(reader, places)
    if metadata.get("split.count", 0) not in (0, 1):
        reader.fail("is one part of a split model", "merge the parts with llama-gguf-split --merge")
    return GGUFFile(path, metadata, _read_tensors(reader, metadata, tensor_count, offset))


def _read_places(reader: _Reader, count: int, offset: int) -> tuple[dict[str, tuple[int, int]], int]:
    reader.check(offset, count * 13, "metadata")  # the shortest pair: an empty key, its type and one byte
    places: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        key, offset = reader.name(offset)
        (kind,) = reader.unpack("I", offset)
        if key in places:
            reader.fail(f"has the metadata key {key!r} twice", _AGAIN)
        places[key] = (kind, offset + 4)
        offset = reader.skip(kind, offset + 4)
    return places, offset


def _read_tensors(reader: _Reader, metadata: Metadata, count: int, offset: int) -> dict[str, GGUFTensor]:
    reader.check(offset, count * 32, "tensor list")  # the shortest entry: an empty name, one dimension
    entries: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(count):
        name, offset = reader.name(offset)
        (dimensions,) = reader.unpack("I", offset)
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            reader.fail(f"has tensor {name!r} with {dimensions} dimensions", _AGAIN)
        *extents, kind, start = reader.unpack(f"{dimensions}QIQ", offset + 4)
        entries.append((name, tuple(reversed(extents)), kind, start))
        offset += 4 + 8 * dimensions + 12
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        reader.fail(f"has general.alignment {alignment!r}", _AGAIN)
    base = -(-offset // alignment) * alignment
    tensors: dict[str, GGUFTensor] = {}
    for name, shape, kind, start in entries:
        stored = GGML_TYPES.get(kind)
        if stored is None:
            reader.fail(f"has tensor {name!r} of unknown type {kind}", "use a file in F16, BF16, Q8_0, Q4_0 or Q4_1")
        if name in tensors or shape[-1] % stored.block or start % alignment:
            reader.fail(f"has tensor {name!r} twice, of a broken row length, or misaligned", _AGAIN)
        size = stored.bytes_of(math.prod(shape))
        reader.check(base + start, size, f"tensor {name!r}")
        tensors[name] = GGUFTensor(name, shape, stored, reader.view[base + start : base + start + size])
    return tensors


class _Reader:
    def __init__(self, path: Path, view: memoryview) -> None:
        self.path, self.view = path, view

    def fail(self, wrong: str, remedy: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {wrong}; {remedy}")

    def check(self, offset: int, size: int, what: str) -> None:
        if offset + size > len(self.view):
            missing = f"{what} needs {offset + size} bytes and the file has {len(self.view)}"
            self.fail(f"is truncated or corrupt ({missing})", _AGAIN)

    def unpack(self, form: str, offset: int) -> tuple[Any, ...]:
        self.check(offset, struct.calcsize("<" + form), "header")
        return struct.unpack_from("<" + form, self.view, offset)

    def name(self, offset: int) -> tuple[str, int]:
        (length,) = self.unpack("Q", offset)
        if length > _MAX_NAME:
            self.fail(f"is corrupt (a name of {length} bytes)", _AGAIN)
        return self.decode(_STRING, offset)

    def skip(self, kind: int, offset: int, nested: bool = False) -> int:
        """The offset after a value."""
        if kind in _SCALARS:
            size = struct.calcsize("<" + _SCALARS[kind])
            self.check(offset, size, "metadata")
            return offset + size
        if kind == _STRING:
            (length,) = self.unpack("Q", offset)
            self.check(offset + 8, length, "a string")
            return int(offset + 8 + length)
        if kind != _ARRAY or nested:
            self.fail(f"is corrupt (metadata of type {kind})", _AGAIN)
        item, count = self.unpack("IQ", offset)
        offset += 12
        if item in _SCALARS:
            size = count * struct.calcsize("<" + _SCALARS[item])
            self.check(offset, size, "an array")
            return int(offset + size)
        self.check(offset, count * 8, "an array")
        if item != _STRING:
            self.fail(f"is corrupt (an array of type {item})", _AGAIN)
        return self._skip_strings(offset, count)

    def _skip_strings(self, offset: int, count: int) -> int:
        # 98,000 strings in a small model: the loop is kept bare (25 ms), and one length past the end stops it.
        length_at, view, end = struct.Struct("<Q").unpack_from, self.view, len(self.view) - 8
        for _ in range(count):
            if offset > end:
                break
            offset += 8 + length_at(view, offset)[0]
        self.check(offset, 0, "an array of strings")
        return offset

    def decode(self, kind: int, offset: int) -> tuple[Any, int]:
        """A value and the offset after it; its bounds must have been checked by `skip`, or it is a string."""
        if kind in _SCALARS:
            (value,) = self.unpack(_SCALARS[kind], offset)
            return value, self.skip(kind, offset)
        if kind == _STRING:
            end = self.skip(_STRING, offset)
            return self._text(offset + 8, end), end
        item, count = self.unpack("IQ", offset)
        if item in _SCALARS:
            return list(self.unpack(f"{count}{_SCALARS[item]}", offset + 12)), self.skip(kind, offset)
        return self._strings(offset + 12, count)

    def _strings(self, offset: int, count: int) -> tuple[list[str], int]:
        length_at, view = struct.Struct("<Q").unpack_from, self.view
        found: list[str] = []
        try:
            for _ in range(count):
                end = offset + 8 + length_at(view, offset)[0]
                found.append(str(view[offset + 8 : end], "utf-8"))
                offset = end
        except UnicodeDecodeError:
            self._text(offset + 8, end)
        return found, offset

    def _text(self, start: int, end: int) -> str:
        try:
            return str(self.view[start:end], "utf-8")
        except UnicodeDecodeError:
            self.fail(f"is corrupt (the text at byte {start} is not UTF-8)", _AGAIN)
