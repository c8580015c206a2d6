"""GGUF's block formats to plain tensors. Source: ggml-quants.c and ggml-common.h of llama.cpp."""

from __future__ import annotations

import torch

from tidegate_engine.files.gguf import GGUFTensor


def unpack(tensor: GGUFTensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor's values in its row-major shape."""
    raw = torch.frombuffer(tensor.data, dtype=torch.uint8)
    plain = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}.get(tensor.type.name)
    if plain is not None:
        return raw.view(plain).to(dtype).reshape(tensor.shape)
    blocks = raw.view(-1, tensor.type.size)
    values = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0, "Q6_K": _q6_k}[tensor.type.name](blocks)
    return values.to(dtype).reshape(tensor.shape)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    return blocks[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    # Of 16 bytes the low halves are the block's first 16 values, the high halves its last.
    return torch.cat((packed & 15, packed >> 4), dim=1)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return (_nibbles(blocks[:, 2:]).to(torch.float32) - 8) * _half(blocks, 0)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(_half(blocks, 2), _nibbles(blocks[:, 4:]).to(torch.float32), _half(blocks, 0))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].contiguous().view(torch.int8).to(torch.float32) * _half(blocks, 0)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    # 256 values: low nibbles 128 bytes, high pairs 64 bytes, 16 scales of one byte, one half-precision scale.
    low = blocks[:, :128].view(-1, 2, 1, 2, 32)
    low = torch.cat((low & 15, low >> 4), dim=2)  # [n, half, nibble, 2, 32]: values 0-63 low, 64-127 high nibbles
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
    high = ((high >> shifts) & 3).view(-1, 2, 2, 2, 32)
    scales = blocks[:, 192:208].contiguous().view(torch.int8).to(torch.float32)
    values = (low | (high << 4)).to(torch.float32).reshape(-1, 16, 16) - 32
    return (values * scales.unsqueeze(-1)).reshape(-1, 256) * _half(blocks, 208)
