"""One rank's weights: checked against the configuration, cut to its share, fused where they are used together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tidegate_engine.files import ModelFileError
from tidegate_engine.kernels.grouped import GroupedMatrix, stacked
from tidegate_engine.kernels.interface import Matrix
from tidegate_engine.model.source import Source


class Weights:
    """Reads tensors in the type and onto the device they are used in, and knows which of them nobody has asked for."""

    _WITHOUT_EFFECT = ("rotary_emb.inv_freq",)
    """Tensors that old checkpoints hold and that follow from the configuration."""

    def __init__(self, source: Source, dtype: torch.dtype, device: str, keep_quantized: bool = False) -> None:
        self._source, self._dtype, self._device, self._keep_quantized = source, dtype, device, keep_quantized
        self._unread = {name for name in source.names() if not name.endswith(self._WITHOUT_EFFECT)}
        self._known = frozenset(source.names())

    @property
    def dtype(self) -> torch.dtype:
        """Of plain weights and activations."""
        return self._dtype

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def rows(
        self,
        names: Sequence[str],
        wanted: Sequence[slice],
        shapes: Sequence[tuple[int, ...]],
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Tensors one upon the other, of each only the wanted rows; `shapes` are what the whole ones must have."""
        for name, shape in zip(names, shapes, strict=True):
            self._check(name, shape)  # all of them before memory is taken for any
        counts = [part.stop - part.start for part in wanted]
        out = torch.empty((sum(counts), *shapes[0][1:]), dtype=dtype or self._dtype)
        for name, part, into in zip(names, wanted, torch.split(out, counts), strict=True):
            self._source.read(name, part, into)
        return out.to(self._device)

    def matrix(self, names: Sequence[str], wanted: Sequence[slice], shapes: Sequence[tuple[int, int]]) -> Matrix:
        """As `rows`, but left quantized where the file has them all so, with groups of one kind."""
        if self._keep_quantized:
            for name, shape in zip(names, shapes, strict=True):
                self._check(name, shape)
            found = [self._source.grouped(name, part) for name, part in zip(names, wanted, strict=True)]
            kept = [part for part in found if part is not None]
            if len(kept) == len(names) and len({(part.bits, part.group_size) for part in kept}) == 1:
                return (stacked(kept) if len(kept) > 1 else kept[0]).to(self._device)
        return self.rows(names, wanted, shapes)

    def whole(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """One tensor as it is, in a type of its own where one is given."""
        return self.rows([name], [slice(0, shape[0])], [shape], dtype)

    def columns(self, name: str, wanted: slice, shape: tuple[int, int]) -> Matrix:
        """A range of one matrix's columns; quantized ones stay so where the range cuts through no group."""
        found = self.matrix([name], [slice(0, shape[0])], [shape])
        if wanted == slice(0, shape[1]):
            return found
        if not isinstance(found, GroupedMatrix):
            return found[:, wanted].contiguous()
        if wanted.start % found.group_size or wanted.stop % found.group_size:
            return self.whole(name, shape)[:, wanted].contiguous()
        return found.columns(wanted)

    def ignore(self, name: str) -> None:
        """A tensor that may be there and that nothing needs."""
        self._unread.discard(name)

    def finish(self) -> None:
        """Raise ModelFileError where the file holds what this model would leave out."""
        if self._unread:
            raise ModelFileError(
                f"{self._source.path}: tensor {min(self._unread)!r} belongs to no part of this architecture; "
                "the model has a feature that is not supported"
            )

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._known:
            raise ModelFileError(
                f"{self._source.path}: tensor {name!r} is missing; download or convert the model again"
            )
        found = self._source.shape(name)
        if found != shape:
            raise ModelFileError(
                f"{self._source.path}: tensor {name!r} has shape {list(found)} where the configuration says "
                f"{list(shape)}; download or convert the model again"
            )
        self._unread.discard(name)
