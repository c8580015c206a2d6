"""Matrices that stay quantized: small whole numbers in groups that share a scale and an offset.

One form holds what checkpoints use: GGUF's Q4_0, Q4_1, Q8_0 and Q6_K blocks, GPTQ, AWQ, and what is quantized at load.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class GroupedMatrix:
    """`w[n, k] = scales[n, k // G] * codes[n, k] + offsets[n, k // G]`, with G = K / groups elements in a group."""

    codes: Tensor
    """uint8 [N, K], each below 2**bits"""
    scales: Tensor
    """float32 [N, groups]"""
    offsets: Tensor
    """float32 [N, groups]"""
    bits: int
    """4 or 8"""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix it stands for."""
        rows, columns = self.codes.shape
        return rows, columns

    @property
    def group_size(self) -> int:
        """Elements that share a scale."""
        return self.codes.shape[1] // self.scales.shape[1]

    def dequantized(self) -> Tensor:
        """The matrix itself, float32 [N, K]."""
        grouped = self.codes.view(*self.scales.shape, -1).to(torch.float32)
        return (grouped * self.scales.unsqueeze(-1) + self.offsets.unsqueeze(-1)).view(self.codes.shape)

    def to(self, device: str) -> GroupedMatrix:
        """The same matrix on a device."""
        return GroupedMatrix(self.codes.to(device), self.scales.to(device), self.offsets.to(device), self.bits)

    def rows(self, wanted: slice | Tensor) -> GroupedMatrix:
        """Some of its rows, in the order asked for."""
        return GroupedMatrix(self.codes[wanted], self.scales[wanted], self.offsets[wanted], self.bits)

    def columns(self, wanted: slice) -> GroupedMatrix:
        """A range of columns that starts and ends where groups do; raises ValueError for another."""
        size = self.group_size
        if wanted.start % size or wanted.stop % size:
            raise ValueError(f"columns {wanted.start} to {wanted.stop} cut through groups of {size}")
        groups = slice(wanted.start // size, wanted.stop // size)
        return GroupedMatrix(self.codes[:, wanted], self.scales[:, groups], self.offsets[:, groups], self.bits)


def stacked(parts: list[GroupedMatrix]) -> GroupedMatrix:
    """Matrices of the same columns, groups and bits, one upon the other."""
    return GroupedMatrix(
        torch.cat([part.codes for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat([part.offsets for part in parts]),
        parts[0].bits,
    )
