"""One rank's model and cache: a batch in, logits out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.model import LoadedModel
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.cuda_graphs import GraphedSteps
from tidegate_engine.runtime.packing import pack
from tidegate_engine.runtime.readout import Readout, read_out, wanted


@dataclass(frozen=True, slots=True)
class Runner:
    """Computes what the scheduler has decided. Every rank has one."""

    model: LoadedModel
    kv: KVCache
    graphs: GraphedSteps | None = None
    """for steps of decoding alone, where the device has graphs"""

    def run(self, batch: Batch) -> tuple[torch.Tensor, Readout]:
        """Logits float32 [S, V] of the rows that sample, and what prompts tell; all keys and values are written."""
        with torch.inference_mode():
            graphed = None if self.graphs is None else self.graphs.logits(batch)
            if graphed is not None:
                return graphed, Readout()
            packed = pack(batch, self.kv.block_size, self.model.device)
            if not wanted(batch):
                return self.model.forward(packed, self.kv), Readout()
            hidden = self.model.hidden(packed, self.kv)
            logits = self.model.logits(hidden[: sum(part.num_rows for part in batch.work)])
            return logits, read_out(batch, hidden, self.model)

    def warm_up(self) -> None:
        """Compute a prefill and a decode once, so that the first user does not wait for allocations and compilation."""
        length = min(8, self.kv.block_size - 1)
        self.run(Batch((Work(0, 0, (0,) * length, (0,), samples=True),)))
        self.run(Batch((Work(0, length, (0,), (0,), samples=True),)))
