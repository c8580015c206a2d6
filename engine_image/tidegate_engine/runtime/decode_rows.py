"""The inputs of a decoding step in buffers that stay where they are, as a captured graph must find them.

All of them lie in one piece of pinned memory, so that one copy brings them to the device. A request keeps its row while
it decodes, and only what is new in its block table is written. Rows up to the captured size that no request has, write
to a scrap block that no request ever gets, and see one token of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tidegate_engine.core.sequence import PENDING
from tidegate_engine.core.step import Batch, Work
from tidegate_engine.model.batch import ForwardBatch

_NUMBERS = 5
"""Numbers a row has beside its block table."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """How many rows there are, and what they refer to."""

    rows: int
    blocks: int
    """of the longest request"""
    block_size: int
    scrap_block: int

    @property
    def numbers(self) -> int:
        """Of all rows together."""
        return self.rows * (_NUMBERS + self.blocks)


@dataclass(frozen=True, slots=True)
class RowViews:
    """One buffer's parts; all int32, [rows] but for the tables [rows, blocks]."""

    given: Tensor
    """the tokens that are known"""
    sources: Tensor
    """for those that are not, the row of the step before that samples them; -1 for the others"""
    positions: Tensor
    slots: Tensor
    context_lens: Tensor
    block_tables: Tensor

    @staticmethod
    def of(buffer: Tensor, shape: RowShape) -> RowViews:
        """The parts of a flat buffer."""
        given, sources, positions, slots, lens = buffer[: _NUMBERS * shape.rows].view(_NUMBERS, shape.rows)
        tables = buffer[_NUMBERS * shape.rows :].view(shape.rows, shape.blocks)
        return RowViews(given, sources, positions, slots, lens, tables)

    def forward_batch(self, count: int, sampled: Tensor, longest: int) -> ForwardBatch:
        """The first `count` rows as a step: `sampled` int64 [rows] are the tokens of the step before."""
        device = self.given.device
        sources = self.sources[:count].to(torch.int64)
        tokens = torch.where(sources < 0, self.given[:count].to(torch.int64), sampled[sources.clamp(min=0)])
        return ForwardBatch(
            token_ids=tokens,
            positions=self.positions[:count].to(torch.int64),
            slots=self.slots[:count].to(torch.int64),
            query_start=torch.arange(count + 1, dtype=torch.int32, device=device),
            context_lens=self.context_lens[:count],
            block_tables=self.block_tables[:count],
            logit_rows=torch.arange(count, dtype=torch.int64, device=device),
            max_query_len=1,
            max_context_len=longest,
        )


class DecodeRows:
    """Which request has which row, and a host buffer of their numbers; each step in flight needs one of its own."""

    def __init__(self, shape: RowShape, pinned: bool) -> None:
        self._shape = shape
        self.buffer = torch.empty(shape.numbers, dtype=torch.int32, pin_memory=pinned)
        views = RowViews.of(self.buffer, shape)
        self._given, self._sources = views.given.numpy(), views.sources.numpy()
        self._positions, self._slots = views.positions.numpy(), views.slots.numpy()
        self._context_lens, self._tables = views.context_lens.numpy(), views.block_tables.numpy()
        self._ids: list[int] = []
        self._written: list[tuple[int, ...]] = []
        for row in range(shape.rows):
            self._clear(row)

    @property
    def ids(self) -> Sequence[int]:
        """The requests by row, as of the last fill."""
        return self._ids

    def fits(self, batch: Batch) -> bool:
        """Whether a step is one that these rows can hold: one token of each request, after which it samples, and no
        adapters, which are of another size each."""
        return len(batch.work) <= self._shape.rows and all(
            part.samples and len(part.token_ids) == 1 and part.scored is None and not part.embeds and not part.adapter
            for part in batch.work
        )

    def fill(self, batch: Batch, before: dict[int, int]) -> None:
        """Write the rows of a step that fits; `before` says in which row the step before has sampled a request."""
        wanted = {part.id: part for part in batch.work}
        had = len(self._ids)
        self._place(wanted)
        count = len(self._ids)
        parts = [wanted[id] for id in self._ids]
        for row, part in enumerate(parts):
            self._write_table(row, part.block_table)
        positions = np.array([part.start for part in parts], dtype=np.int32)
        tokens = [part.token_ids[0] for part in parts]
        self._given[:count] = tokens
        self._sources[:count] = [
            before[part.id] if token == PENDING else -1 for part, token in zip(parts, tokens, strict=True)
        ]
        self._positions[:count] = positions
        self._context_lens[:count] = positions + 1
        size = self._shape.block_size
        blocks = self._tables[np.arange(count), positions // size]
        self._slots[:count] = blocks * size + positions % size
        for row in range(count, had):
            self._clear(row)

    def _place(self, wanted: dict[int, Work]) -> None:
        """Close the gaps of requests that are gone with the last rows, then add those that are new."""
        row = 0
        while row < len(self._ids):
            if self._ids[row] in wanted:
                row += 1
                continue
            last, table = self._ids.pop(), self._written.pop()
            if row < len(self._ids):
                self._ids[row] = last
                self._written[row] = ()
                self._write_table(row, table)
        known = set(self._ids)
        for id in wanted:
            if id not in known:
                self._ids.append(id)
                self._written.append(())

    def _write_table(self, row: int, table: tuple[int, ...]) -> None:
        written = self._written[row]
        if written == table:
            return
        same = len(written) if table[: len(written)] == written else 0
        self._tables[row, same : len(table)] = table[same:]
        self._written[row] = table

    def _clear(self, row: int) -> None:
        self._given[row], self._sources[row], self._positions[row] = 0, -1, 0
        self._slots[row] = self._shape.scrap_block * self._shape.block_size
        self._context_lens[row] = 1
        self._tables[row] = self._shape.scrap_block
