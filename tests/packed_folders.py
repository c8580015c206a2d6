"""Quantized folders, packed number by number from the formats' definitions: no code is shared with what reads them.

A model is quantized, written in a format, and its weights are replaced by exactly what was written: the folder's
numbers are then transformers' numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from small_models import save_small_model
from torch import Tensor, nn

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The columns in a word of AWQ's, lowest bits first."""


@dataclass(frozen=True)
class Rounded:
    """A matrix in whole numbers: `w[n, k] = scales[n, g] * (codes[n, k] - zeros[n, g])`, g = group_of[k]."""

    codes: Tensor
    scales: Tensor
    zeros: Tensor
    group_of: Tensor
    bits: int

    def numbers(self) -> Tensor:
        """What it stands for."""
        return self.scales[:, self.group_of] * (self.codes - self.zeros[:, self.group_of])


def rounded(weight: Tensor, bits: int, group: int, symmetric: bool, scattered: bool = False) -> Rounded:
    """Round to nearest, each group of columns with a scale and a zero point of its own."""
    rows, columns = weight.shape
    groups = -(-columns // group)
    order = torch.randperm(columns, generator=torch.Generator().manual_seed(columns)) if scattered else None
    group_of = torch.arange(columns) // group
    if order is not None:  # as act-order leaves them: the groups' members lie anywhere
        group_of = group_of[order.argsort()]
    scales, zeros = torch.empty(rows, groups), torch.empty(rows, groups, dtype=torch.int64)
    for index in range(groups):
        part = weight[:, group_of == index]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(high, -low)
            low = -high
        scales[:, index] = ((high - low) / (2**bits - 1)).to(torch.float16).to(torch.float32)
        zeros[:, index] = 2 ** (bits - 1) if symmetric else (-low / scales[:, index]).round().to(torch.int64)
    codes = (weight / scales[:, group_of] + zeros[:, group_of]).round().clamp(0, 2**bits - 1).to(torch.int64)
    return Rounded(codes, scales, zeros, group_of, bits)


def words(values: Tensor, bits: int) -> Tensor:
    """int32 [n, m / (32 / bits)] of whole numbers [n, m], the first in the lowest bits."""
    each = 32 // bits
    values = torch.nn.functional.pad(values, (0, -values.shape[1] % each))
    packed = torch.zeros(len(values), values.shape[1] // each, dtype=torch.int64)
    for place in range(each):
        packed |= values[:, place::each] << (bits * place)
    return packed.to(torch.int32)  # what does not fit into 31 bits wraps to negative numbers


def gptq(stem: str, matrix: Rounded, less: int) -> dict[str, Tensor]:
    """`less` is what is taken off zero points: 1 in the first format, 0 in the second."""
    zeros = (matrix.zeros.t() - less) % 2**matrix.bits
    return {
        f"{stem}.qweight": words(matrix.codes, matrix.bits).t().contiguous(),
        f"{stem}.qzeros": words(zeros, matrix.bits),
        f"{stem}.scales": matrix.scales.t().to(torch.float16).contiguous(),
        f"{stem}.g_idx": matrix.group_of.to(torch.int32),
        f"{stem}.bias": torch.zeros(len(matrix.codes), dtype=torch.float16),
    }


def awq(stem: str, matrix: Rounded) -> dict[str, Tensor]:
    def shuffled(values: Tensor) -> Tensor:
        return values.reshape(len(values), -1, 8)[:, :, _ORDER].flatten(1)

    return {
        f"{stem}.qweight": words(shuffled(matrix.codes.t()), 4),
        f"{stem}.qzeros": words(shuffled(matrix.zeros.t()), 4),
        f"{stem}.scales": matrix.scales.t().to(torch.float16).contiguous(),
    }


def compressed(stem: str, matrix: Rounded, symmetric: bool, scattered: bool) -> dict[str, Tensor]:
    made = {
        f"{stem}.weight_packed": words(matrix.codes, matrix.bits),
        f"{stem}.weight_scale": matrix.scales.to(torch.bfloat16 if symmetric else torch.float32),
        f"{stem}.weight_shape": torch.tensor(matrix.codes.shape),
    }
    if not symmetric:
        made[f"{stem}.weight_zero_point"] = words(matrix.zeros.t(), matrix.bits).t().contiguous()
    if scattered:
        made[f"{stem}.weight_g_idx"] = matrix.group_of.to(torch.int32)
    return made


def whole_numbers(stem: str, matrix: Rounded) -> dict[str, Tensor]:
    return {f"{stem}.weight": (matrix.codes - 128).to(torch.int8), f"{stem}.weight_scale": matrix.scales}


def float8_blocks(stem: str, weight: Tensor, block: int) -> tuple[dict[str, Tensor], Tensor]:
    """As DeepSeek and Qwen write it: one scale for each square block, those at the edges smaller."""
    rows, columns = weight.shape
    scales = torch.empty(-(-rows // block), -(-columns // block))
    codes, numbers = torch.empty(rows, columns), torch.empty(rows, columns)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = (slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block))
            scales[i, j] = weight[part].abs().max() / 448
            codes[part] = (weight[part] / scales[i, j]).to(torch.float8_e4m3fn).to(torch.float32)
            numbers[part] = codes[part] * scales[i, j]
    return {f"{stem}.weight": codes.to(torch.float8_e4m3fn), f"{stem}.weight_scale_inv": scales}, numbers


def float8_scaled(stem: str, weight: Tensor, by_row: bool) -> tuple[dict[str, Tensor], Tensor]:
    """As vLLM writes it: one scale for each row, or one for all."""
    scales = weight.abs().amax(1, keepdim=True) / 448 if by_row else weight.abs().max() / 448
    codes = (weight / scales).to(torch.float8_e4m3fn)
    made = {f"{stem}.weight": codes, f"{stem}.weight_scale": scales, f"{stem}.input_scale": torch.tensor(0.5)}
    return made, codes.to(torch.float32) * scales


Pack = Callable[[str, Tensor], tuple[dict[str, Tensor], Tensor]]
"""(stem, weight) -> its tensors in the folder, and the numbers they stand for"""


def save_packed(name: str, folder: Path, pack: Pack, quantization: dict[str, Any]) -> transformers.PreTrainedModel:
    """The small model called so in a quantized folder, and a model of the same numbers to compare with."""
    model = save_small_model(name, folder)
    tensors = dict(model.state_dict())
    for stem, module in model.named_modules():
        if isinstance(module, nn.Linear) and stem != "lm_head":
            parts, numbers = pack(stem, module.weight.data)
            del tensors[f"{stem}.weight"]
            tensors = parts | tensors  # the model's own bias, where it has one, is kept
            module.weight.data = numbers
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
    return model
