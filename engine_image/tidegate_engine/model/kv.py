"""The paged cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KVCache:
    """Per layer, keys and values `[num_blocks, kv_heads, block_size, head_dim]`."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    block_size: int

    @staticmethod
    def allocate(
        num_blocks: int, block_size: int, num_layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
    ) -> KVCache:
        """Allocate the whole pool of zeros and touch it: memory that is only promised would end the pod hours later."""
        shape = (num_blocks, kv_heads, block_size, head_dim)

        def tensors() -> list[torch.Tensor]:
            return [torch.empty(shape, dtype=dtype, device=device).fill_(0) for _ in range(num_layers)]

        return KVCache(tensors(), tensors(), block_size)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.keys[0].shape[0]


def block_bytes(block_size: int, num_layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """What one block of tokens takes in all layers, keys and values."""
    return 2 * num_layers * kv_heads * block_size * head_dim * dtype.itemsize
