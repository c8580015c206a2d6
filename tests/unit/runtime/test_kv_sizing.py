"""How large the KV cache becomes, and what is said when it cannot hold one request."""

from __future__ import annotations

import pytest
from tidegate_engine.runtime.errors import CannotStart
from tidegate_engine.runtime.kv_sizing import num_blocks

MEBIBYTE = 2**20
GIBIBYTE = 2**30


def blocks(memory: int | None, memory_left: int, max_model_len: int = 2048, slots: int = 32) -> int:
    """With blocks of 16 tokens that take 1 MiB, so that a request of 2048 tokens takes 128."""
    return num_blocks(
        memory=memory,
        memory_left=memory_left,
        bytes_per_block=MEBIBYTE,
        block_size=16,
        max_model_len=max_model_len,
        slots=slots,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(blocks(300 * MEBIBYTE + 5, GIBIBYTE), 300, id="memory given is used, in whole blocks"),
        pytest.param(blocks(None, 1000 * MEBIBYTE), 500, id="auto takes half of what is left"),
        pytest.param(blocks(None, 100 * GIBIBYTE), 1024, id="auto takes no more than slots of usual length fill"),
        pytest.param(blocks(None, 100 * GIBIBYTE, slots=1000), 4096, id="auto never takes more than 4 GiB"),
        pytest.param(
            blocks(None, 100 * GIBIBYTE, max_model_len=32768, slots=1), 2048, id="one long request always fits"
        ),
    ],
)
def test_size(found: int, expected: int) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("memory", "left", "message"),
    [
        pytest.param(
            100 * MEBIBYTE,
            GIBIBYTE,
            "kvCacheMemory 100Mi: holds 1600 tokens, fewer than maxModelLen 2048; "
            "give 128Mi or more, or lower model.maxModelLen",
            id="too little given",
        ),
        pytest.param(
            None,
            200 * MEBIBYTE,
            "kvCacheMemory auto (100Mi, half of the memory that is left): holds 1600 tokens, "
            "fewer than maxModelLen 2048; "
            "raise resources.limits.memory, or lower model.maxModelLen",
            id="too little left",
        ),
        pytest.param(
            2 * GIBIBYTE,
            GIBIBYTE,
            "kvCacheMemory 2048Mi: only 1024Mi are left after the weights; raise resources.limits.memory, or give less",
            id="more given than there is",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_line(memory: int | None, left: int, message: str) -> None:
    with pytest.raises(CannotStart) as error:
        blocks(memory, left)
    assert str(error.value) == message
