"""A scheduled batch as tensors: the one place where a step's data goes from Python to the device."""

from __future__ import annotations

from collections.abc import Sequence

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
    adapted: dict[int, list[int]] = {}
    for work in batch.work:
        if work.adapter:
            rows = range(len(token_ids), len(token_ids) + len(work.token_ids))
            adapted.setdefault(work.adapter, []).extend(rows)
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
        token_ids=to_device(token_ids, torch.int64, device),
        positions=to_device(positions, torch.int64, device),
        slots=to_device(slots, torch.int64, device),
        query_start=to_device(query_start, torch.int32, device),
        context_lens=to_device(context_lens, torch.int32, device),
        block_tables=to_device(tables, torch.int32, device),
        logit_rows=to_device(logit_rows + scored_rows, torch.int64, device),
        max_query_len=max(len(work.token_ids) for work in batch.work),
        max_context_len=max(context_lens),
        adapters=[(adapter, to_device(rows, torch.int64, device)) for adapter, rows in sorted(adapted.items())],
    )


def to_device(numbers: Sequence[float] | Sequence[Sequence[int]], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor of numbers on a device, without waiting for what the device is doing."""
    if not device.startswith("cuda"):
        return torch.tensor(numbers, dtype=dtype, device=device)
    # From memory that is not pinned, the copy would wait for every step before it.
    return torch.tensor(numbers, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
