"""What a PEFT adapter folder's adapter_config.json says of low-rank adaptation (LoRA; Hu et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.files.json_file import read_json

_UNSUPPORTED = (
    "use_dora",
    "lora_bias",
    "fan_in_fan_out",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
    "layer_replication",
    "use_qalora",
)
"""Fields that change the answer where they say anything."""
_PLAIN_BEGINNINGS = (None, True, False, "gaussian", "eva", "orthogonal")
"""Values of init_lora_weights that leave the base model as it is; others (PiSSA, OLoRA, LoftQ) change its weights."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """An adapter adds scale * B A to each matrix it adapts, A and B of this rank."""

    rank: int
    scale: float


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Raises ModelFileError for what is missing, broken, or not plain LoRA."""
    path = folder / "adapter_config.json"
    raw = read_json(path, "an adapter's folder holds adapter_config.json and adapter_model.safetensors")
    try:
        return _from_json(path, raw)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelFileError(f"{path}: does not describe an adapter ({error!r}); download it again") from None


def _from_json(path: Path, raw: dict[str, Any]) -> AdapterConfig:
    if raw["peft_type"] != "LORA":
        raise ModelFileError(f"{path}: peft_type {raw['peft_type']!r} is not supported; LORA is")
    field = next((field for field in _UNSUPPORTED if raw.get(field)), None)
    if field is not None:
        raise ModelFileError(f"{path}: {field} {raw[field]!r} is not supported; merge the adapter into its model")
    if raw.get("bias", "none") != "none":
        raise ModelFileError(f"{path}: bias {raw['bias']!r} is not supported; none is")
    if raw.get("init_lora_weights") not in _PLAIN_BEGINNINGS:
        raise ModelFileError(
            f"{path}: init_lora_weights {raw['init_lora_weights']!r} changes the model's own weights; "
            "convert the adapter to plain LoRA"
        )
    rank, alpha = int(raw["r"]), float(raw["lora_alpha"])
    if rank < 1:
        raise ValueError(f"r {rank}")
    return AdapterConfig(rank, alpha / (rank**0.5 if raw.get("use_rslora") else rank))
