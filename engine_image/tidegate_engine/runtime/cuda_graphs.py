"""Decoding steps as CUDA graphs: a step of 300 small kernels costs one launch.

A graph is captured for each of some sizes of batch; a step runs the smallest that holds it. What is captured is told
apart from how: on a CPU the same work runs as it is, so that sizes, padding and buffers can be tested without a GPU.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tidegate_engine.core.step import Batch
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.load import LoadedModel
from tidegate_engine.runtime.decode_rows import DecodeRows, RowShape, RowViews
from tidegate_engine.runtime.packing import to_device

_WARM_UPS = 2
"""Runs before a capture: kernels are compiled, and libraries take their workspaces, in the first."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Work that can be done again, and where its result then is."""

    replay: Callable[[], None]
    result: Tensor


class Capture(Protocol):
    """Makes work repeatable on the tensors that it has been given once."""

    def __call__(self, work: Callable[[], Tensor]) -> Captured:
        """Do the work once or more, and keep how it is done."""
        ...


def as_it_is(work: Callable[[], Tensor]) -> Captured:
    """For devices without graphs: the work itself is done anew, into the same result."""
    result = work()

    def replay() -> None:
        result.copy_(work())

    return Captured(replay, result)


class CudaCapture:
    """Graphs that share a pool of memory, since only one runs at a time: capture the largest first."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], Tensor]) -> Captured:
        """See Capture."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = work()
        return Captured(graph.replay, result)


def capture_for(device: str) -> Capture:
    """Graphs where the device has them."""
    return CudaCapture() if device.startswith("cuda") else as_it_is


def batch_sizes(most: int) -> tuple[int, ...]:
    """Sizes worth a graph: every one wastes at most half of its rows, and from 16 on at most a seventh or so."""
    sizes = {1, 2, 4, 8, most}
    size = 16
    while size < most:
        sizes.add(size)
        size += max(8, size // 8 // 8 * 8)
    return tuple(sorted(size for size in sizes if size <= most))


class DecodeGraphs:
    """A decoding step of any number of requests up to `shape.rows`, from numbers in one host buffer to logits."""

    def __init__(self, model: LoadedModel, kv: KVCache, shape: RowShape, capture: Capture) -> None:
        self._device_numbers = torch.zeros(shape.numbers, dtype=torch.int32, device=model.device)
        self._views = RowViews.of(self._device_numbers, shape)
        # What no step has written yet is a row that disturbs nobody.
        self._views.sources.fill_(-1)
        self._views.slots.fill_(shape.scrap_block * shape.block_size)
        self._views.context_lens.fill_(1)
        self._views.block_tables.fill_(shape.scrap_block)
        self.sampled = torch.zeros(shape.rows, dtype=torch.int64, device=model.device)
        """The tokens that the step before has sampled, by row: whoever samples writes them here."""
        self._sizes = batch_sizes(shape.rows)
        self._graphs: dict[int, Captured] = {}
        longest = shape.blocks * shape.block_size
        with torch.inference_mode():
            for size in reversed(self._sizes):
                # size is bound now: the work is done again whenever it is replayed.
                def step(size: int = size) -> Tensor:
                    return model.forward(self._views.forward_batch(size, self.sampled, longest), kv)

                self._graphs[size] = capture(step)

    def logits(self, numbers: Tensor, count: int) -> Tensor:
        """Logits float32 [count, V], valid until the next call; `numbers` is the buffer of a DecodeRows."""
        size = self._sizes[bisect_left(self._sizes, count)]
        with torch.inference_mode():
            self._device_numbers.copy_(numbers, non_blocking=True)
            captured = self._graphs[size]
            captured.replay()
            return captured.result[:count]


class GraphedSteps:
    """Steps of decoding alone by graphs, for whoever reads a step's tokens before the next is made.

    The cache has one block more than the scheduler's pool: the scrap block, its last.
    """

    def __init__(self, model: LoadedModel, kv: KVCache, slots: int, capture: Capture) -> None:
        shape = RowShape(slots, -(-model.config.max_position // kv.block_size), kv.block_size, kv.num_blocks - 1)
        self._graphs = DecodeGraphs(model, kv, shape, capture)
        self._rows = DecodeRows(shape, pinned=model.device.startswith("cuda"))

    def logits(self, batch: Batch) -> Tensor | None:
        """Logits float32 [S, V] in the order of the batch's work; None for a step that is more than decoding."""
        if not self._rows.fits(batch):
            return None
        self._rows.fill(batch, {})
        ids = list(self._rows.ids)
        found = self._graphs.logits(self._rows.buffer, len(ids))
        wanted = [part.id for part in batch.work]
        if wanted == ids:
            return found
        place = {id: row for row, id in enumerate(ids)}
        return found[to_device([place[id] for id in wanted], torch.int64, str(found.device))]
