"""A batch as tensors: every token at its position and in its slot."""

from __future__ import annotations

from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.runtime.packing import pack


def test_a_chunk_and_a_decode_side_by_side() -> None:
    batch = Batch(
        (
            Work(1, start=6, token_ids=(50,), block_table=(3, 9), samples=True),
            Work(2, start=2, token_ids=(60, 61, 62), block_table=(5, 0), samples=False),
            Work(3, start=0, token_ids=(70, 71), block_table=(7,), samples=True),
        )
    )
    packed = pack(batch, block_size=4, device="cpu")
    assert packed.token_ids.tolist() == [50, 60, 61, 62, 70, 71]
    assert packed.positions.tolist() == [6, 2, 3, 4, 0, 1]
    assert packed.slots.tolist() == [9 * 4 + 2, 5 * 4 + 2, 5 * 4 + 3, 0, 28, 29]
    assert packed.query_start.tolist() == [0, 1, 4, 6]
    assert packed.context_lens.tolist() == [7, 5, 2]
    assert packed.block_tables.tolist() == [[3, 9], [5, 0], [7, 0]]
    assert packed.logit_rows.tolist() == [0, 5]
    assert (packed.max_query_len, packed.max_context_len) == (3, 7)


def test_guesses_have_rows_of_their_own() -> None:
    batch = Batch(
        (
            Work(1, start=6, token_ids=(50, 51, 52), block_table=(3, 9, 1), samples=True, drafts=2),
            Work(2, start=2, token_ids=(60,), block_table=(5,), samples=True),
        )
    )
    assert pack(batch, block_size=4, device="cpu").logit_rows.tolist() == [0, 1, 2, 3]
