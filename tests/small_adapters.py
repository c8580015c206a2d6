"""PEFT adapters with random weights for the small models, and the models that they would be merged into."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

RANK, ALPHA = 4, 6.0
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": RANK,
    "lora_alpha": ALPHA,
    "bias": "none",
    "target_modules": ["q_proj"],
    "init_lora_weights": True,
    "modules_to_save": None,
    "rank_pattern": {},
    "use_dora": False,
}


def save_small_adapter(model: Path, folder: Path, seed: int, modules: tuple[str, ...], **changes: Any) -> Path:
    """An adapter of every matrix of the model whose name ends with one of the modules."""
    made = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in load_file(model / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem.endswith(modules):
            rows, columns = weight.shape
            tensors[f"base_model.model.{stem}.lora_A.weight"] = torch.randn(RANK, columns, generator=made) * 0.3
            tensors[f"base_model.model.{stem}.lora_B.weight"] = torch.randn(rows, RANK, generator=made) * 0.3
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def save_merged(model: Path, adapter: Path, folder: Path, scale: float = ALPHA / RANK) -> Path:
    """The model with scale * B A added to its weights."""
    shutil.copytree(model, folder)
    weights = load_file(model / "model.safetensors")
    added = load_file(adapter / "adapter_model.safetensors")
    for name in weights:
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in added:
            weights[name] += scale * added[f"{stem}.lora_B.weight"] @ added[f"{stem}.lora_A.weight"]
    save_file(weights, folder / "model.safetensors")
    return folder
