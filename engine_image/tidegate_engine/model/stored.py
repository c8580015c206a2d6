"""A matrix as a quantized folder stores it, whichever format that is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """`w[n, k] = scales[n, g] * (codes[n, k] - zeros[n, g])` with g = group_of[k]."""

    codes: Tensor
    """uint8 [N, K]"""
    scales: Tensor
    """float32 [N, G]"""
    zeros: Tensor
    """float32 [N, G]"""
    group_of: Tensor | None
    """int64 [K], which group a column belongs to; None: G equal ones, one after the other"""
    bits: int

    def grouped(self) -> GroupedMatrix | None:
        """The same codes in groups of neighbours; None where groups are scattered, as GPTQ's act-order leaves them."""
        if self.group_of is not None and not self._in_order():
            return None
        return GroupedMatrix(self.codes, self.scales, self.scales * -self.zeros, self.bits)

    def write_into(self, out: Tensor) -> None:
        """Write the matrix itself over `out` [N, K]; exact, whatever the order of its groups."""
        if self.group_of is None:
            values = self.codes.view(*self.scales.shape, -1).to(torch.float32)
            out.copy_(((values - self.zeros.unsqueeze(-1)) * self.scales.unsqueeze(-1)).view(out.shape))
            return
        for first in range(0, len(out), _ROWS):
            rows = slice(first, first + _ROWS)
            scales, zeros = self.scales[rows][:, self.group_of], self.zeros[rows][:, self.group_of]
            out[rows] = (self.codes[rows].to(torch.float32) - zeros) * scales

    def _in_order(self) -> bool:
        columns, groups = self.codes.shape[1], self.scales.shape[1]
        if self.group_of is None or columns % groups:
            return self.group_of is None
        return torch.equal(self.group_of, torch.arange(columns) // (columns // groups))


_ROWS = 256
"""Rows whose scales are spread over their columns at a time: 256 of 8192 float32 are 8 MB."""


def unpacked(words: Tensor, bits: int) -> Tensor:
    """Codes uint8 [..., n * 32 / bits] of words int32 [..., n]; the lowest bits come first."""
    codes = words.contiguous().view(torch.uint8)  # little-endian, as safetensors is
    if bits == 8:
        return codes
    return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
