"""The paged cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidegate_engine.kernels.interface import KVScales
from tidegate_engine.kernels.kv_codes import LARGEST


@dataclass(frozen=True, slots=True)
class KVCache:
    """Per layer, keys and values `[num_blocks, kv_heads, block_size, head_dim]`, as numbers or as codes with scales."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    block_size: int
    scales: list[KVScales] | None = None
    """of codes in int8 or float8_e4m3fn"""

    @staticmethod
    def allocate(
        num_blocks: int, block_size: int, num_layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
    ) -> KVCache:
        """Allocate the whole pool of zeros and touch it: memory that is only promised would end the pod hours later."""
        shape = (num_blocks, kv_heads, block_size, head_dim)

        def codes() -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device).zero_()

        def scales() -> torch.Tensor:
            return torch.empty(shape[:-1], dtype=torch.float32, device=device).zero_()

        keys, values = [[codes() for _ in range(num_layers)] for _ in range(2)]
        quantized = dtype in LARGEST
        return KVCache(
            keys, values, block_size, [KVScales(scales(), scales()) for _ in range(num_layers)] if quantized else None
        )

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.keys[0].shape[0]

    def scales_of(self, layer: int) -> KVScales | None:
        """What a layer's codes are multiplied by; None where it holds numbers."""
        return None if self.scales is None else self.scales[layer]


def block_bytes(block_size: int, num_layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """What one block of tokens takes in all layers, keys and values, and their scales."""
    scale = torch.float32.itemsize if dtype in LARGEST else 0
    return 2 * num_layers * kv_heads * block_size * (head_dim * dtype.itemsize + scale)
