"""Quantized folders compute what transformers computes with the numbers they stand for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from forward_steps import Sequences
from packed_folders import (
    Pack,
    awq,
    compressed,
    float8_blocks,
    float8_scaled,
    gptq,
    rounded,
    save_packed,
    whole_numbers,
)
from rank_processes import two_steps, two_steps_over
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.folder_source import FolderSource

PROMPTS = [
    [int(x) for x in torch.randint(0, 100, (n,), generator=torch.Generator().manual_seed(n))] for n in (1, 37, 90)
]
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}
FLOAT8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


def _gptq(bits: int = 4, group: int = 16, symmetric: bool = True, scattered: bool = False, less: int = 1) -> Pack:
    def pack(stem: str, weight: torch.Tensor) -> Any:
        matrix = rounded(weight, bits, group, symmetric, scattered)
        return gptq(stem, matrix, less), matrix.numbers()

    return pack


def _awq(stem: str, weight: torch.Tensor) -> Any:
    matrix = rounded(weight, 4, 16, symmetric=False)
    return awq(stem, matrix), matrix.numbers()


def _compressed(bits: int, group: int, symmetric: bool = True, scattered: bool = False) -> Pack:
    def pack(stem: str, weight: torch.Tensor) -> Any:
        matrix = rounded(weight, bits, group, symmetric, scattered)
        made = compressed(stem, matrix, symmetric, scattered)
        written = matrix if not symmetric else _rescaled(matrix, made[f"{stem}.weight_scale"])
        return made, written.numbers()

    return pack


def _rescaled(matrix: Any, scales: torch.Tensor) -> Any:
    return type(matrix)(matrix.codes, scales.to(torch.float32), matrix.zeros, matrix.group_of, matrix.bits)


def _int8(stem: str, weight: torch.Tensor) -> Any:
    matrix = rounded(weight, 8, weight.shape[1], symmetric=True)
    return whole_numbers(stem, matrix), matrix.numbers()


def _config(form: str, bits: int, kind: str = "int") -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "strategy": "group", "symmetric": True}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"weights": weights}}}


FOLDERS: dict[str, tuple[str, Pack, dict[str, Any]]] = {
    "GPTQ": ("Llama", _gptq(), GPTQ),
    "GPTQ with zero points": ("Llama", _gptq(symmetric=False), GPTQ | {"sym": False}),
    "GPTQ, second format": (
        "Llama",
        _gptq(symmetric=False, less=0),
        GPTQ | {"sym": False, "checkpoint_format": "gptq_v2"},
    ),
    "GPTQ in 8 bits, one group to a row": ("Llama", _gptq(8, 1000), GPTQ | {"bits": 8, "group_size": -1}),
    "GPTQ with columns in act-order": ("Llama", _gptq(symmetric=False, scattered=True), GPTQ | {"desc_act": True}),
    "GPTQ with a last group that is shorter": ("Llama", _gptq(group=32), GPTQ | {"group_size": 32}),
    "GPTQ of a model with biases": ("Qwen2", _gptq(), GPTQ),
    "GPTQ of tied embeddings": ("Llama with tied embeddings", _gptq(), GPTQ),
    "AWQ": ("Llama", _awq, AWQ),
    "AWQ of a model with biases": ("Qwen2", _awq, AWQ),
    "compressed-tensors w4a16": ("Llama", _compressed(4, 16), _config("pack-quantized", 4)),
    "compressed-tensors w4a16 with zero points": ("Qwen3", _compressed(4, 16, False), _config("pack-quantized", 4)),
    "compressed-tensors w4a16 in act-order": (
        "Llama",
        _compressed(4, 16, scattered=True),
        _config("pack-quantized", 4),
    ),
    "compressed-tensors w8a16, a scale a row": ("Llama", _compressed(8, 1000), _config("pack-quantized", 8)),
    "compressed-tensors int8": ("Llama", _int8, _config("int-quantized", 8)),
    "compressed-tensors float8": (
        "Llama",
        partial(float8_scaled, by_row=True),
        _config("float-quantized", 8, "float"),
    ),
    "float8, one scale": ("Llama", partial(float8_scaled, by_row=False), FLOAT8),
    "float8, a scale a row": ("Llama", partial(float8_scaled, by_row=True), FLOAT8),
    "float8 in blocks": ("Qwen3", partial(float8_blocks, block=32), FLOAT8 | {"weight_block_size": [32, 32]}),
}
SCATTERED = ("GPTQ with columns in act-order", "GPTQ with a last group", "compressed-tensors w4a16 in act-order")


@pytest.mark.parametrize("case", FOLDERS)
def test_logits(case: str, tmp_path: Path) -> None:
    model, pack, quantization = FOLDERS[case]
    theirs = save_packed(model, tmp_path, pack, quantization)
    with torch.inference_mode():
        wanted = torch.stack([theirs(torch.tensor([prompt])).logits[0, -1] for prompt in PROMPTS])
    found = Sequences(load(tmp_path, Shard(), "float32", None), PROMPTS, 100).step()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("case", FOLDERS)
def test_rows_of_a_matrix_stay_codes_where_groups_are_neighbours(case: str, tmp_path: Path) -> None:
    model, pack, quantization = FOLDERS[case]
    theirs = save_packed(model, tmp_path, pack, quantization)
    source, stem = FolderSource(tmp_path), "model.layers.1.mlp.gate_proj"
    rows, wanted = slice(13, 57), theirs.get_submodule(stem).weight.data
    assert source.shape(f"{stem}.weight") == tuple(wanted.shape)
    numbers = torch.empty(44, wanted.shape[1])
    source.read(f"{stem}.weight", rows, numbers)
    torch.testing.assert_close(numbers, wanted[rows], atol=1e-6, rtol=1e-6)
    kept = source.grouped(f"{stem}.weight", rows)
    assert (kept is None) == (case.startswith(SCATTERED) or "float8" in case)
    if kept is not None:
        assert int(kept.codes.max()) < 2**kept.bits
        torch.testing.assert_close(kept.dequantized(), wanted[rows], atol=1e-5, rtol=1e-5)
    assert source.grouped("model.norm.weight", slice(0, 48)) is None


@pytest.mark.parametrize("case", ["GPTQ with columns in act-order", "AWQ", "float8 in blocks"])
def test_two_ranks_compute_what_one_computes(case: str, tmp_path: Path) -> None:
    save_packed(FOLDERS[case][0], tmp_path, *FOLDERS[case][1:])
    wanted, _ = two_steps(tmp_path, Shard())
    for logits, _ in two_steps_over(2, tmp_path):
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
