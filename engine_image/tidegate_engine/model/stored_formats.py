"""The formats of quantized folders: which tensors a matrix is made of, and how to read rows of it.

Sources: the packing loops of AutoGPTQ's and AutoAWQ's WQLinear, compressed-tensors' pack_to_int32, and vLLM's fp8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tidegate_engine.files.quantization import StoredQuantization
from tidegate_engine.model.stored import StoredMatrix, unpacked

Rows = slice
_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
"""Where in a word AWQ puts its eight columns: it stores them in the order 0, 2, 4, 6, 1, 3, 5, 7."""
_ALL = slice(None)


class Tensors(Protocol):
    """The folder's tensors under the names they are stored with."""

    def __contains__(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one that exists."""
        ...

    def tensor(self, name: str, rows: slice = _ALL, columns: slice | None = None) -> Tensor:
        """A part of one that exists; `columns` of a matrix only."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a matrix `STEM.weight`."""

    marker: str
    """the tensor that says, by being there, that a matrix is stored so"""
    companions: tuple[str, ...]
    """its other tensors, and those that come with it and that nothing here needs"""
    shape: Callable[[Tensors, str], tuple[int, int]]
    read: Callable[[Tensors, str, Rows], StoredMatrix]


def formats_of(stored: StoredQuantization) -> tuple[Format, ...]:
    """How the matrices of a folder may be stored; those in no such way are plain."""
    if stored.kind == "gptq":
        return (_gptq(stored),)
    if stored.kind == "awq":
        return (_AWQ,)
    return (_PACKED, _INT8) if stored.kind == "compressed" else ()


def _gptq(stored: StoredQuantization) -> Format:
    bits, per_word = stored.bits, 32 // stored.bits

    def shape(tensors: Tensors, stem: str) -> tuple[int, int]:
        words, rows = tensors.shape(f"{stem}.qweight")
        return rows, words * per_word

    def read(tensors: Tensors, stem: str, rows: Rows) -> StoredMatrix:
        zeros = unpacked(tensors.tensor(f"{stem}.qzeros"), bits)[:, rows]
        if stored.zeros_less_one:
            zeros = (zeros + 1) & (2**bits - 1)  # a zero point of 0 is stored as all ones
        name = f"{stem}.g_idx"
        codes = unpacked(tensors.tensor(f"{stem}.qweight", columns=rows).t(), bits)
        scales = tensors.tensor(f"{stem}.scales", columns=rows).t().to(torch.float32).contiguous()
        group_of = tensors.tensor(name).to(torch.int64) if name in tensors else None
        return StoredMatrix(codes, scales, zeros.t().to(torch.float32).contiguous(), group_of, bits)

    return Format("qweight", ("qzeros", "scales", "g_idx"), shape, read)


def _awq_shape(tensors: Tensors, stem: str) -> tuple[int, int]:
    columns, words = tensors.shape(f"{stem}.qweight")
    return words * 8, columns


def _awq_read(tensors: Tensors, stem: str, rows: Rows) -> StoredMatrix:
    words = slice(rows.start // 8, -(-rows.stop // 8))
    inner = slice(rows.start - words.start * 8, rows.stop - words.start * 8)

    def codes(name: str) -> Tensor:
        found = unpacked(tensors.tensor(f"{stem}.{name}", columns=words), 4)
        ordered = found.view(len(found), -1, 8)[:, :, _AWQ_PLACES].flatten(1)
        return ordered[:, inner].t().contiguous()

    scales = tensors.tensor(f"{stem}.scales", columns=rows).t().to(torch.float32).contiguous()
    return StoredMatrix(codes("qweight"), scales, codes("qzeros").to(torch.float32), None, 4)


def _packed_shape(tensors: Tensors, stem: str) -> tuple[int, int]:
    rows, columns = tensors.tensor(f"{stem}.weight_shape").tolist()
    return int(rows), int(columns)


def _packed_read(tensors: Tensors, stem: str, rows: Rows) -> StoredMatrix:
    columns = _packed_shape(tensors, stem)[1]
    packed = tensors.tensor(f"{stem}.weight_packed", rows)
    # Eight codes of four bits to a word, or four of eight; the last word of a row may not be full.
    bits = 4 if packed.shape[1] == -(-columns // 8) else 8
    codes = unpacked(packed, bits)[:, :columns].contiguous()
    scales = tensors.tensor(f"{stem}.weight_scale", rows).to(torch.float32)
    zeros = torch.full_like(scales, 2 ** (bits - 1))  # of signed numbers, stored with half the range added
    if f"{stem}.weight_zero_point" in tensors:
        # Packed along the rows: word i holds rows from i * 32 / bits on.
        words = tensors.tensor(f"{stem}.weight_zero_point")
        zeros = unpacked(words.t(), bits).t()[rows].to(torch.float32).contiguous()
    name = f"{stem}.weight_g_idx"
    group_of = tensors.tensor(name).to(torch.int64) if name in tensors else None
    if group_of is not None and bool((group_of < 0).any()):  # so its writer says that nothing was reordered
        group_of = None
    return StoredMatrix(codes, scales, zeros, group_of, bits)


def _int8_shape(tensors: Tensors, stem: str) -> tuple[int, int]:
    rows, columns = tensors.shape(f"{stem}.weight")
    return rows, columns


def _int8_read(tensors: Tensors, stem: str, rows: Rows) -> StoredMatrix:
    codes = tensors.tensor(f"{stem}.weight", rows).view(torch.uint8) ^ 0x80  # two's complement plus 128
    scales = tensors.tensor(f"{stem}.weight_scale").to(torch.float32)
    scales = scales[rows] if scales.dim() == 2 and len(scales) > 1 else scales.view(1, 1).expand(len(codes), 1)
    zeros = torch.full_like(scales, 128.0)
    if f"{stem}.weight_zero_point" in tensors:
        zeros = tensors.tensor(f"{stem}.weight_zero_point").to(torch.float32)[rows] + 128
    return StoredMatrix(codes, scales.contiguous(), zeros.expand_as(scales).contiguous(), None, 8)


_AWQ = Format("qweight", ("qzeros", "scales"), _awq_shape, _awq_read)
_SCALED = ("weight_scale", "weight_zero_point", "input_scale", "input_zero_point", "output_scale")
_PACKED = Format("weight_packed", ("weight_shape", "weight_g_idx", *_SCALED), _packed_shape, _packed_read)
_INT8 = Format("weight_scale", ("weight", *_SCALED[1:]), _int8_shape, _int8_read)
