"""How many blocks the KV cache gets."""

from __future__ import annotations

from tidegate_engine.runtime.errors import CannotStart

SHARE = 0.5
"""Of the memory that is left after the weights; the rest is for activations, logits and growth of the process."""
CAP = 4 * 2**30
"""Bytes."""
USUAL_LENGTH = 512
"""Tokens a running request is expected to hold. More memory than slots times this only makes the start slower."""


def num_blocks(
    *, memory: int | None, memory_left: int, bytes_per_block: int, block_size: int, max_model_len: int, slots: int
) -> int:
    """Blocks for this rank; `memory` is what the user gave it, None for a share of `memory_left`. All sizes in bytes.

    Raises CannotStart where not even one request of `max_model_len` tokens would fit.
    """
    one_request = -(-max_model_len // block_size)
    if memory is not None and memory > memory_left:
        raise CannotStart(
            f"kvCacheMemory {_mebibytes(memory)}: only {_mebibytes(memory_left)} are left after the weights; "
            "raise resources.limits.memory, or give less"
        )
    if memory is None:
        usual = slots * -(-min(max_model_len, USUAL_LENGTH) // block_size)
        blocks = min(int(memory_left * SHARE), CAP) // bytes_per_block
        blocks = min(blocks, max(one_request, usual))
        given = f"kvCacheMemory auto ({_mebibytes(int(memory_left * SHARE))}, half of the memory that is left)"
        remedy = "raise resources.limits.memory, or lower model.maxModelLen"
    else:
        blocks = memory // bytes_per_block
        given = f"kvCacheMemory {_mebibytes(memory)}"
        remedy = f"give {_mebibytes(one_request * bytes_per_block, up=True)} or more, or lower model.maxModelLen"
    if blocks < one_request:
        room = blocks * block_size
        raise CannotStart(f"{given}: holds {room} tokens, fewer than maxModelLen {max_model_len}; {remedy}")
    return blocks


def _mebibytes(size: int, up: bool = False) -> str:
    return f"{-(-size // 2**20) if up else size // 2**20}Mi"
