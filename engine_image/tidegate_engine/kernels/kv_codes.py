"""Keys and values in eight bits: each token's vector of each head has a scale of its own, so that none depends on
when, or beside what, it was written."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""The types of codes, and the largest number that each holds."""


def encode(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Vectors [..., D] to codes of `dtype` and scales float32 [...]: `x` is about `codes * scales`."""
    wide = x.to(torch.float32)
    scales = wide.abs().amax(dim=-1) / LARGEST[dtype]
    codes = wide / torch.where(scales > 0, scales, 1.0).unsqueeze(-1)
    return (codes.round() if dtype == torch.int8 else codes).to(dtype), scales


def decode(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Codes [..., D] and scales [...] back to numbers of `dtype`."""
    return (codes.to(torch.float32) * scales.unsqueeze(-1)).to(dtype)
