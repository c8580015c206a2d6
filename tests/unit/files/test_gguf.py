"""The GGUF parser: what it reads, and what it says of files that are broken."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_file import smollm2
from small_gguf import F32, SHAPE, gguf_bytes, small_tensors
from tidegate_engine.files import ModelFileError
from tidegate_engine.files.config_gguf import from_gguf
from tidegate_engine.files.gguf import read_gguf

WHOLE = gguf_bytes()


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    metadata = read_gguf(_written(tmp_path, WHOLE)).metadata
    assert set(metadata) == set(SHAPE)
    assert {key: metadata[key] for key in SHAPE} == SHAPE | {
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5)
    }


def test_tensors_with_their_bytes(tmp_path: Path) -> None:
    tensors = read_gguf(_written(tmp_path, WHOLE)).tensors
    for name, shape, _, content in small_tensors():
        assert (tensors[name].shape, bytes(tensors[name].data)) == (shape, content)


@pytest.mark.model
def test_the_real_file_takes_less_than_a_fifth_of_a_second_of_this_process() -> None:
    before = time.process_time()
    metadata = read_gguf(smollm2()).metadata
    assert len(metadata["tokenizer.ggml.tokens"]) == 49152
    assert time.process_time() - before < 0.2


def _with(**changes: object) -> bytes:
    return gguf_bytes(SHAPE | {key.replace("__", "."): value for key, value in changes.items()})


def _tensor(name: str, shape: tuple[int, ...], kind: int, content: bytes = b"") -> bytes:
    return gguf_bytes(tensors=[(name, shape, kind, content)])


BROKEN = {
    "nothing at all": (b"", "is empty; download"),
    "a web page": (b"<html>404</html>", "does not begin with GGUF"),
    "four bytes": (b"GGUF", "is truncated or corrupt"),
    "half of the header": (WHOLE[:200], "is truncated or corrupt"),
    "the last byte missing": (WHOLE[:-1], r"is truncated or corrupt \(tensor 'blk.0.ffn_down.weight' needs"),
    "an old version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "has GGUF version 1; convert"),
    "the other byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is big-endian; convert"),
    "2^60 metadata pairs": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60) + WHOLE[24:], "metadata needs"),
    "2^60 tensors": (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0) + WHOLE[24:], "tensor list needs"),
    "an array of 2^62 numbers": (_with(x=struct.pack("<IIQ", 9, 4, 2**62)), "an array needs"),
    "an array of 2^62 strings": (_with(x=struct.pack("<IIQ", 9, 8, 2**62)), "an array needs"),
    "a string of 2^63 bytes": (_with(x=struct.pack("<IQ", 8, 2**63)), "a string needs"),
    "an array of arrays": (_with(x=struct.pack("<IIQ", 9, 9, 1)), "an array of type 9"),
    "a value of unknown type": (_with(x=struct.pack("<I", 77)), "metadata of type 77"),
    "an alignment of zero": (_with(general__alignment=0), "general.alignment 0"),
    "a part of a split model": (_with(split__count=3), "one part of a split model; merge"),
    "a tensor of unknown type": (_tensor("a", (32,), 200), "tensor 'a' of unknown type 200; use"),
    "a row that ends within a block": (_tensor("a", (33,), 3), "tensor 'a' twice, of a broken row"),
    "a tensor larger than the file": (_tensor("a", (2**40, 2**20), F32), "tensor 'a' needs"),
    "nine dimensions": (_tensor("a", (1,) * 9, F32), "with 9 dimensions"),
}


@pytest.mark.parametrize(("content", "wanted"), [pytest.param(*case, id=name) for name, case in BROKEN.items()])
def test_a_broken_file_is_one_telling_line(content: bytes, wanted: str, tmp_path: Path) -> None:
    path = _written(tmp_path, content)
    with pytest.raises(ModelFileError, match=wanted) as caught:
        read_gguf(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("absent.gguf", "does not exist; check spec.model.source"), ("", "is a folder where a file is needed")],
    ids=["a file that is not there", "a folder"],
)
def test_a_path_that_is_no_file(name: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=wanted):
        read_gguf(tmp_path / name)


def test_metadata_that_is_not_text_is_found_when_asked_for(tmp_path: Path) -> None:
    file = read_gguf(_written(tmp_path, WHOLE.replace(b"<|end|>", b"\xff|end|>")))
    with pytest.raises(ModelFileError, match="is not UTF-8"):
        file.metadata["tokenizer.ggml.tokens"]


@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 7)), max_size=4), st.integers(0, len(WHOLE)))
def test_damage_of_any_kind_is_a_model_file_error_or_none(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], length: int
) -> None:
    damaged = bytearray(WHOLE)
    for at, bit in flips:
        damaged[at] ^= 1 << bit
    path = _written(tmp_path_factory.mktemp("damaged"), bytes(damaged[: length if length % 3 == 0 else None]))
    try:
        file = read_gguf(path)
        assert len(dict(file.metadata)) == len(file.metadata)
        from_gguf(file)
    except ModelFileError as error:
        assert "\n" not in str(error)
