"""Steps on a device, tokens included: launched without waiting, their inputs and results in memory that is pinned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tidegate_engine.core.sequence import PENDING
from tidegate_engine.core.step import Batch
from tidegate_engine.model.batch import ForwardBatch
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.load import LoadedModel
from tidegate_engine.runtime.cuda_graphs import Capture, DecodeGraphs
from tidegate_engine.runtime.decode_rows import DecodeRows, RowShape
from tidegate_engine.runtime.packing import pack, to_device

ChooseTokens = Callable[[Batch, list[int], Tensor], Tensor]
"""(batch, ids by row, logits [rows, V]) -> token of each row, int64, on the device"""

_BUFFERS = 2
"""Steps in flight: while one runs the next is written, and the one before has been read."""


@dataclass(frozen=True, slots=True)
class Launched:
    """See InFlight; `order` is the row of each part that samples."""

    batch: Batch
    order: list[int]
    host_tokens: Tensor
    done: torch.cuda.Event | None

    def tokens(self) -> list[list[int]]:
        """See InFlight."""
        if self.done is not None:
            self.done.synchronize()
        found = self.host_tokens.tolist()
        return [[found[row]] for row in self.order]


class DeviceLauncher:
    """Decoding by graphs, any other step as it comes; sampled tokens stay on the device for the step after.

    The cache has one block more than the scheduler's pool: the scrap block, its last.
    """

    def __init__(
        self, model: LoadedModel, kv: KVCache, slots: int, longest: int, capture: Capture, choose: ChooseTokens
    ) -> None:
        self._model, self._kv, self._choose = model, kv, choose
        self._on_gpu = model.device.startswith("cuda")
        shape = RowShape(slots, -(-longest // kv.block_size), kv.block_size, kv.num_blocks - 1)
        self._graphs = DecodeGraphs(model, kv, shape, capture)
        self._rows = [DecodeRows(shape, self._on_gpu) for _ in range(_BUFFERS)]
        self._results = [torch.empty(slots, dtype=torch.int64, pin_memory=self._on_gpu) for _ in range(_BUFFERS)]
        self._turn = 0
        self._before: dict[int, int] = {}

    def launch(self, batch: Batch) -> Launched:
        """See Launcher."""
        self._turn = (self._turn + 1) % _BUFFERS
        rows = self._rows[self._turn]
        with torch.inference_mode():
            if rows.fits(batch):
                rows.fill(batch, self._before)
                ids = list(rows.ids)
                logits = self._graphs.logits(rows.buffer, len(ids))
            else:
                ids = [part.id for part in batch.work if part.samples]
                logits = self._model.forward(self._packed(batch), self._kv)
            if ids:
                self._graphs.sampled[: len(ids)] = self._choose(batch, ids, logits)
            place = {id: row for row, id in enumerate(ids)}
            self._before = place
            result = self._results[self._turn][: len(ids)]
            result.copy_(self._graphs.sampled[: len(ids)], non_blocking=True)
        done = None
        if self._on_gpu:
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        return Launched(batch, [place[part.id] for part in batch.work if part.samples], result, done)

    def _packed(self, batch: Batch) -> ForwardBatch:
        """The tensors of a step, tokens that are not known yet taken from where the step before puts them."""
        packed = pack(batch, self._kv.block_size, self._model.device)
        sources = [self._before[part.id] if token == PENDING else -1 for part in batch.work for token in part.token_ids]
        if max(sources) < 0:
            return packed
        rows = to_device(sources, torch.int64, self._model.device)
        known = torch.where(rows < 0, packed.token_ids, self._graphs.sampled[rows.clamp(min=0)])
        return replace(packed, token_ids=known)
