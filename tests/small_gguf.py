"""A small GGUF file, written byte by byte so that each can be made wrong."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

Tensor = tuple[str, tuple[int, ...], int, bytes]
"""name, shape in torch's order, type, bytes"""

SHAPE: dict[str, Any] = {
    "general.architecture": "llama",
    "general.alignment": 32,
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["a", "b", "é", "<|end|>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3],
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.ggml.eos_token_id": 3,
}
F32, Q4_1, Q4_K = 0, 3, 12


def small_tensors() -> list[Tensor]:
    """Every tensor of the model that SHAPE describes: norms in F32, matrices in Q4_1."""
    drawn = random.Random(1)

    def matrix(name: str, rows: int, columns: int) -> Tensor:
        blocks = rows * columns // 32
        data = b"".join(struct.pack("<ee", 0.01, -0.07) + drawn.randbytes(16) for _ in range(blocks))
        return f"{name}.weight", (rows, columns), Q4_1, data

    def norm(name: str) -> Tensor:
        return f"{name}.weight", (32,), F32, struct.pack("<32f", *[1.0] * 32)

    layer = "blk.0."
    return [
        matrix("token_embd", 4, 32),
        norm("output_norm"),
        norm(layer + "attn_norm"),
        norm(layer + "ffn_norm"),
        matrix(layer + "attn_q", 32, 32),
        matrix(layer + "attn_k", 16, 32),
        matrix(layer + "attn_v", 16, 32),
        matrix(layer + "attn_output", 32, 32),
        matrix(layer + "ffn_gate", 32, 32),
        matrix(layer + "ffn_up", 32, 32),
        matrix(layer + "ffn_down", 32, 32),
    ]


def gguf_bytes(metadata: Mapping[str, Any] = SHAPE, tensors: Sequence[Tensor] | None = None) -> bytes:
    """The file; values of type bytes are a type and a value already encoded."""
    tensors = small_tensors() if tensors is None else tensors
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key) + (value if isinstance(value, bytes) else _value(value))
    data = b""
    for name, shape, kind, content in tensors:
        head += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    items = [_value(item) for item in value]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)
