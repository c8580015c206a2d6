"""Products with weights that stay quantized on the device: 4 or 8 bits in memory, codes multiplied as they are.

A group's share of the product is `scale * (x @ codes) + offset * sum(x)`: the codes, up to 255, are exact in bfloat16,
and scales are applied to float32 sums. Nothing is dequantized ahead, so a step reads 4 or 8 bits a weight. Few rows
leave most of a GPU idle, so the columns of `x` are split among programs too, and the parts added up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import Linear, Matrix
from tidegate_engine.kernels.reference import linear as plain_linear

_PROGRAMS = 264
"""Two for each of an H200's multiprocessors."""
_MOST_SPLITS = 16


@triton.jit
def _multiply(
    x_ptr,
    codes_ptr,
    scales_ptr,
    offsets_ptr,
    bias_ptr,
    out_ptr,
    rows,
    outputs,
    steps,
    steps_each,
    x_stride,
    BITS: tl.constexpr,
    STEP: tl.constexpr,
    STEPS_IN_GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIASED: tl.constexpr,
):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    split = tl.program_id(2)
    row_there, output_there = row < rows, output < outputs
    packed: tl.constexpr = STEP * BITS // 8
    column = tl.arange(0, packed)
    x_row = x_ptr + row.to(tl.int64)[:, None] * x_stride + column[None, :]
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for step in range(split * steps_each, tl.minimum(steps, (split + 1) * steps_each)):
        place = (step * outputs + output).to(tl.int64)[:, None] * packed + column[None, :]
        codes = tl.load(codes_ptr + place, mask=output_there[:, None], other=0)
        first = tl.load(x_row + step * STEP, mask=row_there[:, None], other=0.0)
        sums = tl.sum(first.to(tl.float32), axis=1)
        if BITS == 4:
            second = tl.load(x_row + step * STEP + packed, mask=row_there[:, None], other=0.0)
            sums += tl.sum(second.to(tl.float32), axis=1)
            found = tl.dot(first, tl.trans((codes & 15).to(first.dtype)), input_precision="ieee")
            found = tl.dot(second, tl.trans((codes >> 4).to(first.dtype)), found, input_precision="ieee")
        else:
            found = tl.dot(first, tl.trans(codes.to(first.dtype)), input_precision="ieee")
        group = step // STEPS_IN_GROUP * outputs + output
        scale = tl.load(scales_ptr + group, mask=output_there, other=0.0)
        offset = tl.load(offsets_ptr + group, mask=output_there, other=0.0)
        total += found * scale[None, :] + sums[:, None] * offset[None, :]
    if BIASED:
        total += tl.load(bias_ptr + output, mask=output_there, other=0.0).to(tl.float32)[None, :]
    to = out_ptr + (split.to(tl.int64) * rows + row[:, None]) * outputs + output[None, :]
    tl.store(to, total.to(out_ptr.dtype.element_ty), mask=row_there[:, None] & output_there[None, :])


@dataclass(frozen=True, slots=True)
class TritonGrouped:
    """x W^T + b with W in codes; see Kernels.linear."""

    codes: Tensor
    """uint8 [K / step, N, step * bits / 8]: a tile of a step lies in one piece; with 4 bits, a step's first half in low
    nibbles and its second in high ones"""
    scales: Tensor
    """float32 [K / group, N]"""
    offsets: Tensor
    bias: Tensor | None
    bits: int
    step: int

    def __call__(self, x: Tensor) -> Tensor:
        """See Linear."""
        flat = x.reshape(-1, x.shape[-1])
        rows, (steps, outputs, _) = len(flat), self.codes.shape
        if not rows:
            return x.new_empty((*x.shape[:-1], outputs))
        tall = 16 if rows <= 16 else 32 if rows <= 32 else 64
        wide = 64 if rows <= 64 else 128
        tiles = triton.cdiv(outputs, wide) * triton.cdiv(rows, tall)
        splits = max(1, min(_PROGRAMS // tiles, steps // 4, _MOST_SPLITS))
        kind = x.dtype if splits == 1 else torch.float32
        out = torch.empty((splits, rows, outputs), dtype=kind, device=x.device)
        _multiply[(triton.cdiv(outputs, wide), triton.cdiv(rows, tall), splits)](
            flat,
            self.codes,
            self.scales,
            self.offsets,
            flat if self.bias is None else self.bias,
            out,
            rows,
            outputs,
            steps,
            triton.cdiv(steps, splits),
            flat.stride(0),
            BITS=self.bits,
            STEP=self.step,
            STEPS_IN_GROUP=steps // len(self.scales),
            ROWS=tall,
            OUTPUTS=wide,
            BIASED=splits == 1 and self.bias is not None,
            num_warps=4,
            num_stages=4,
        )
        if splits == 1:
            return out.view(*x.shape[:-1], outputs)
        total = out.sum(dim=0)
        if self.bias is not None:
            total += self.bias
        return total.to(x.dtype).view(*x.shape[:-1], outputs)


def linear(weight: Matrix, bias: Tensor | None) -> Linear:
    """See Kernels.linear. Groups that no tile fits (of fewer than 32 four-bit codes, say) are dequantized once."""
    if not isinstance(weight, GroupedMatrix):
        return plain_linear(weight, bias)
    step = next((size for size in (128, 64, 32, 16) if weight.group_size % size == 0), 0)
    if step * weight.bits < 128:
        return _Dequantized(weight.dequantized(), bias)
    outputs, columns = weight.shape
    codes = weight.codes.view(outputs, columns // step, step)
    if weight.bits == 4:
        codes = codes[..., : step // 2] | (codes[..., step // 2 :] << 4)
    return TritonGrouped(
        codes.transpose(0, 1).contiguous(),
        weight.scales.t().contiguous(),
        weight.offsets.t().contiguous(),
        bias,
        weight.bits,
        step,
    )


class _Dequantized:
    """Weights whose type is that of the first activations."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        if self._weight.dtype != x.dtype:
            self._weight = self._weight.to(x.dtype)
        return F.linear(x, self._weight, self._bias)
