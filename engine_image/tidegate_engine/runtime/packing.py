"""A scheduled batch as tensors: the one place where a step's data goes from Python to the device."""

from __future__ import annotations

import torch

from tidegate_engine.core.scheduler import Batch
from tidegate_engine.model.batch import ForwardBatch


def pack(batch: Batch, block_size: int, device: str) -> ForwardBatch:
    """The tensors of one step, in the order of the batch's work."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    query_start = [0]
    context_lens: list[int] = []
    logit_rows: list[int] = []
    scored_rows: list[int] = []
    widest = max(len(work.block_table) for work in batch.work)
    tables: list[tuple[int, ...]] = []
    for work in batch.work:
        end = work.start + len(work.token_ids)
        token_ids += work.token_ids
        positions += range(work.start, end)
        table = work.block_table
        slots += [table[at // block_size] * block_size + at % block_size for at in range(work.start, end)]
        query_start.append(len(token_ids))
        context_lens.append(end)
        tables.append(table + (0,) * (widest - len(table)))
        logit_rows += range(len(token_ids) - work.num_rows, len(token_ids))
        if work.scored is not None:
            first = query_start[-2] + work.scored.start - work.start
            scored_rows += range(first, first + len(work.scored.targets))
    return ForwardBatch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64, device=device),
        positions=torch.tensor(positions, dtype=torch.int64, device=device),
        slots=torch.tensor(slots, dtype=torch.int64, device=device),
        query_start=torch.tensor(query_start, dtype=torch.int32, device=device),
        context_lens=torch.tensor(context_lens, dtype=torch.int32, device=device),
        block_tables=torch.tensor(tables, dtype=torch.int32, device=device),
        logit_rows=torch.tensor(logit_rows + scored_rows, dtype=torch.int64, device=device),
        max_query_len=max(len(work.token_ids) for work in batch.work),
        max_context_len=max(context_lens),
    )
