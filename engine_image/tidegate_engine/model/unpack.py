"""GGUF's block formats to plain tensors. Source: ggml-quants.c and ggml-common.h of llama.cpp."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix


def unpack_into(kind: str, raw: Tensor, out: Tensor) -> None:
    """Write the values of a type's blocks (uint8 [n, bytes of a block]) over `out` [n, elements of a block]."""
    if kind in _PLAIN:
        out.copy_(raw.view(_PLAIN[kind]))
    else:
        _BLOCKS[kind](raw, out)


def group_blocks(kind: str, raw: Tensor) -> GroupedMatrix | None:
    """Blocks of whole rows (uint8 [rows, blocks, bytes of a block]) as they are; None where a type has no groups."""
    rows, count, size = raw.shape
    flat = raw.reshape(rows * count, size)

    def matrix(codes: Tensor, scales: Tensor, offsets: Tensor, bits: int) -> GroupedMatrix:
        return GroupedMatrix(codes.view(rows, -1), scales.view(rows, -1), offsets.view(rows, -1), bits)

    if kind == "Q4_0":
        scales = _half(flat, 0)
        return matrix(_nibbles(flat[:, 2:]), scales, scales * -8, 4)
    if kind == "Q4_1":
        return matrix(_nibbles(flat[:, 4:]), _half(flat, 0), _half(flat, 2), 4)
    if kind == "Q8_0":
        scales = _half(flat, 0)
        return matrix(flat[:, 2:] ^ 0x80, scales, scales * -128, 8)  # two's complement plus 128
    if kind == "Q6_K":
        codes, scales = _q6_k_parts(flat)
        return matrix(codes, scales, scales * -32, 8)
    return None


def _half(blocks: Tensor, at: int) -> Tensor:
    return blocks[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: Tensor) -> Tensor:
    # Of 16 bytes the low halves are the block's first 16 values, the high halves its last.
    return torch.cat((packed & 15, packed >> 4), dim=1)


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_((_nibbles(blocks[:, 2:]).to(torch.float32) - 8).mul_(_half(blocks, 0)))


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    values = _nibbles(blocks[:, 4:]).to(torch.float32)
    out.copy_(values.mul_(_half(blocks, 0)).add_(_half(blocks, 2)))


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8).to(torch.float32).mul_(_half(blocks, 0)))


def _q6_k_parts(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Codes uint8 [n, 256] below 64, which stand for themselves less 32, and float32 scales [n, 16]."""
    # 256 values: low nibbles 128 bytes, high pairs 64 bytes, 16 scales of one byte, one half-precision scale.
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = torch.cat((low & 15, low >> 4), dim=2).view(-1, 2, 4, 32)  # low nibbles are values 0-63, high ones 64-127
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
    codes = low | (((high >> shifts) & 3) << 4)
    return codes.view(-1, 256), blocks[:, 192:208].view(torch.int8).to(torch.float32) * _half(blocks, 208)


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    codes, scales = _q6_k_parts(blocks)
    values = codes.to(torch.float32).sub_(32).view(-1, 16, 16)
    out.copy_((values * scales.unsqueeze(-1)).view(-1, 256))


_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BLOCKS: dict[str, Callable[[Tensor, Tensor], None]] = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0, "Q6_K": _q6_k}
READABLE = (*_PLAIN, *_BLOCKS)
