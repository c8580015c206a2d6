"""GGUF's block formats give the numbers that the gguf package gives."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from tidegate_engine.files.ggml_types import GGML_TYPES
from tidegate_engine.model.unpack import READABLE, group_blocks, unpack_into

_HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q6_K": (208,)}
"""Where a block has numbers in half precision, which random bytes could make infinite."""


@pytest.mark.parametrize("name", READABLE)
def test_every_readable_type(name: str) -> None:
    kind = next(kind for kind in GGML_TYPES.values() if kind.name == name)
    drawn = np.random.default_rng(3)
    blocks = drawn.integers(0, 256, (40, kind.size), dtype=np.uint8)
    if name in ("F32", "F16", "BF16"):
        plain = torch.from_numpy(drawn.standard_normal((40, 1), dtype=np.float32))
        narrow = plain.to({"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[name])
        blocks = narrow.view(torch.uint8).numpy()
    for at in _HALVES.get(name, ()):
        blocks[:, at : at + 2] = drawn.standard_normal((40, 1)).astype(np.float16).view(np.uint8)
    wanted = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
    found = torch.empty(40, kind.block)
    unpack_into(name, torch.from_numpy(blocks), found)
    torch.testing.assert_close(found, torch.from_numpy(wanted).view(40, -1), atol=1e-6, rtol=1e-6)
    kept = group_blocks(name, torch.from_numpy(blocks).view(20, 2, kind.size))
    assert (kept is not None) == name.startswith("Q")
    if kept is not None:
        assert int(kept.codes.max()) < 2**kept.bits
        # Scale times code plus offset rounds otherwise than scale times the difference.
        torch.testing.assert_close(kept.dequantized(), found.view(20, -1), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("number", GGML_TYPES)
def test_sizes_of_blocks(number: int) -> None:
    kind = GGML_TYPES[number]
    assert gguf.GGMLQuantizationType(number).name == kind.name
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (kind.block, kind.size)
