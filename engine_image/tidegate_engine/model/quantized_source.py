"""A source whose matrices are quantized as they are read: `spec.model.quantization`.

What stays wider was decided by measuring (docs/quantization.md): with int4 the embedding, the head and the projections
to queries, keys and values are kept in eight bits; float8 leaves embedding and head alone; a router always stays.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tidegate_engine.files.quantization import Quantization
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.model.quantize import float8, group_size, quantize
from tidegate_engine.model.source import Source

DESCRIPTIONS: dict[Quantization, str] = {
    "none": "",
    "int8": "; what is stored wider quantized to int8 in groups of 32",
    "int4": "; what is stored wider quantized to int4 in groups of 32; queries, keys, values, embedding, head to int8",
    "fp8": "; weights rounded to float8 by rows and kept wide, since no kernel here multiplies float8",
}
"""For the log."""
_OUTER = ("model.embed_tokens.weight", "lm_head.weight")
_FINE = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "qkv_proj.weight")
_WIDE = ("mlp.gate.weight", "block_sparse_moe.gate.weight")
"""Routers: small, and an error there sends a token to another expert."""


class QuantizedSource:
    """Another source's tensors. Matrices that are stored in as few bits already come as they are stored."""

    def __init__(self, source: Source, quantization: Quantization) -> None:
        self.path = source.path
        self._source, self._quantization = source, quantization

    def names(self) -> Iterable[str]:
        """See Source."""
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source."""
        return self._source.shape(name)

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        """See Source; what is read is what the quantized matrix stands for."""
        kept = self.grouped(name, rows)
        if kept is not None:
            out.copy_(kept.dequantized())
        elif self._rounds(name):
            out.copy_(float8(self._wide(name, rows)))
        else:
            self._source.read(name, rows, out)

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        stored = self._source.grouped(name, rows)
        bits = self._bits(name)
        if bits is None or (stored is not None and stored.bits <= bits):
            return stored
        size = group_size(self._source.shape(name)[1])
        return stored if size is None else quantize(self._wide(name, rows), bits, size)

    def _bits(self, name: str) -> int | None:
        """Bits of a matrix; None for what is left as it is stored."""
        if self._quantization not in ("int8", "int4") or not self._is_matrix(name):
            return None
        return 8 if self._quantization == "int8" or name in _OUTER or name.endswith(_FINE) else 4

    def _rounds(self, name: str) -> bool:
        return self._quantization == "fp8" and self._is_matrix(name) and name not in _OUTER

    def _is_matrix(self, name: str) -> bool:
        return name.endswith(".weight") and not name.endswith(_WIDE) and len(self._source.shape(name)) == 2

    def _wide(self, name: str, rows: slice) -> Tensor:
        out = torch.empty((rows.stop - rows.start, self._source.shape(name)[1]), dtype=torch.float32)
        self._source.read(name, rows, out)
        return out
