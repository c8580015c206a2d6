"""Quantizing a matrix when it is loaded: groups of neighbours in a row share a scale, and nothing else is looked at.

So a rank's rows, cut from the whole, are what the whole's rows are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix

GROUP = 32
"""Elements that share a scale, as in GGUF's blocks."""
_LEVELS_TRIED = (15.0, 14.5, 14.0, 13.25, 12.5)
"""How many steps of four bits a group's range is cut into: fewer than 15 shrink a step and clip what sticks out.
Five are as good as twenty (docs/quantization.md)."""
_CHUNK = 2**17
"""Elements worked on at a time: 512 KiB of float32 for each of a handful of temporaries, so that they stay in cache."""


def group_size(columns: int) -> int | None:
    """Elements that share a scale in rows of so many; None where no kernel could take groups that fit."""
    return next((size for size in (GROUP, 16) if columns % size == 0), None)


def quantize(weight: Tensor, bits: int, size: int) -> GroupedMatrix:
    """A float32 matrix [N, K] in 8 or 4 bits, rounded to nearest in groups of `size`, which divides K."""
    codes = torch.empty(weight.shape, dtype=torch.uint8)
    scales, offsets = torch.empty(2, len(weight), weight.shape[1] // size)
    rows = max(1, _CHUNK // weight.shape[1])
    for first in range(0, len(weight), rows):
        part = slice(first, first + rows)
        grouped = weight[part].reshape(-1, size).t().contiguous()  # sums over a group add whole rows
        found, scale, offset = _eight_bits(grouped) if bits == 8 else _four_bits(grouped)
        codes[part] = found.t().reshape(weight[part].shape)
        scales[part], offsets[part] = scale.view(-1, scales.shape[1]), offset.view(-1, scales.shape[1])
    return GroupedMatrix(codes, scales, offsets, bits)


def float8(weight: Tensor) -> Tensor:
    """A float32 matrix [N, K] rounded to what float8_e4m3fn with one scale for each row can hold."""
    scales = weight.abs().amax(dim=1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    scales = torch.where(scales > 0, scales, 1.0)
    return (weight / scales).to(torch.float8_e4m3fn).to(torch.float32).mul_(scales)


def _halves(x: Tensor) -> Tensor:
    """Rounded to what half precision holds, so that kernels may keep scales in it and lose nothing."""
    return x.to(torch.float16).to(torch.float32)


def _eight_bits(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Groups [size, n] to codes, scales and offsets: symmetric, as in GGUF's Q8_0."""
    scales = _halves(x.abs().amax(dim=0) / 127)
    codes = (x * _inverse(scales)).round_().clamp_(-128, 127).add_(128)
    return codes.to(torch.uint8), scales, scales * -128


def _four_bits(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Groups [size, n] to codes, scales and offsets of the least squared error among a few ways to cut the range.

    For the codes that each way gives, the best scale and offset are a line fitted by least squares
    (make_qkx2_quants of llama.cpp; weighting large elements more made it worse here).
    """
    low, high = x.amin(dim=0), x.amax(dim=0)
    spread, size = high - low, float(len(x))
    total = x.sum(dim=0)
    best = torch.full_like(low, torch.inf)
    scales, offsets = torch.zeros_like(low), low.clone()
    for levels in _LEVELS_TRIED:
        inverse = levels * _inverse(spread)
        codes = ((x - low) * inverse).round_().clamp_(0, 15)
        sums, squares, products = codes.sum(dim=0), codes.square().sum(dim=0), (codes * x).sum(dim=0)
        scale = (size * products - sums * total) * _inverse(size * squares - sums * sums)
        offset = (total - scale * sums) / size
        # The squared error of a fitted line, less what is the same for all ways: the sum of x squared.
        error = -(scale * products + offset * total)
        better = error < best
        best = torch.where(better, error, best)
        scales, offsets = torch.where(better, scale, scales), torch.where(better, offset, offsets)
    scales, offsets = _halves(scales), _halves(offsets)
    codes = ((x - offsets) * _inverse(scales)).round_().clamp_(0, 15)
    return codes.to(torch.uint8), scales, offsets


def _inverse(x: Tensor) -> Tensor:
    """One over x, and 0 over 0."""
    return torch.where(x == 0, 0.0, 1.0 / x)
