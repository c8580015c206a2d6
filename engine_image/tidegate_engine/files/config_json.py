"""A model's shape from a Hugging Face folder's config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate_engine.files.config import Experts, LayerKind, ModelConfig
from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.files.families import FAMILIES, HUGGING_FACE, Activation, Family, Windows
from tidegate_engine.files.json_file import read_json
from tidegate_engine.files.rope_json import Ropes, read_ropes

_BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a value of another kind than expected raises."""
_MOST_LAYERS = 10_000
_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}


def from_folder(folder: Path) -> ModelConfig:
    """The configuration in a Hugging Face folder's config.json. Raises ModelFileError."""
    path = folder / "config.json"
    raw = read_json(path, "a model folder holds config.json and *.safetensors, download it whole")
    try:
        return _from_json(path, raw)
    except _BROKEN as error:
        raise ModelFileError(f"{path}: does not say the model's shape ({error!r}); download it again") from None


def _from_json(path: Path, raw: dict[str, Any]) -> ModelConfig:
    name = raw["architectures"][0]
    architecture = HUGGING_FACE.get(name)
    if architecture is None:
        raise ModelFileError(f"{path}: architecture {name} is not supported; use one of {', '.join(HUGGING_FACE)}")
    if raw.get("use_bidirectional_attention"):
        raise ModelFileError(f"{path}: use_bidirectional_attention is not supported; use a causal model")
    family = FAMILIES[architecture]
    eos = raw.get("eos_token_id")
    heads, hidden = int(raw["num_attention_heads"]), int(raw["hidden_size"])
    layers = int(raw["num_hidden_layers"])
    if not 0 < layers <= _MOST_LAYERS:
        raise ValueError(f"num_hidden_layers {layers}")
    head_dim = int(raw.get("head_dim") or hidden // heads)
    max_position = int(raw.get("max_position_embeddings", 2048))
    ropes = read_ropes(path, raw, family, head_dim, max_position)
    experts = _experts(raw)
    kinds = _kinds(path, raw, family, layers, experts is not None)
    return ModelConfig(
        architecture=architecture,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=int(raw["intermediate_size"]),
        num_heads=heads,
        num_kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocab_size=int(raw["vocab_size"]),
        max_position=ropes.max_position,
        rope_theta=ropes.theta,
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tied_embeddings=bool(raw.get("tie_word_embeddings", family.tied)),
        qkv_bias=family.qkv_bias or bool(raw.get("attention_bias", False)),
        output_bias=not family.qkv_bias and bool(raw.get("attention_bias", False)),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        rope_scaling=ropes.scaling,
        local_rope_theta=ropes.local_theta,
        rotated_size=_rotated_size(ropes, head_dim),
        query_scalar=_number(raw, "query_pre_attn_scalar"),
        window=int(raw["sliding_window"]) if any(kind.windowed for kind in kinds) else None,
        pattern=kinds,
        attention_softcap=_number(raw, "attn_logit_softcapping"),
        logit_softcap=_number(raw, "final_logit_softcapping"),
        activation=_activation(path, raw, family),
        experts=experts,
        norms_less_one=family.norms_less_one,
    )


def _number(raw: dict[str, Any], key: str) -> float | None:
    return None if raw.get(key) is None else float(raw[key])


def _rotated_size(ropes: Ropes, head_dim: int) -> int | None:
    return None if ropes.rotated_part == 1.0 else int(head_dim * ropes.rotated_part)


def _activation(path: Path, raw: dict[str, Any], family: Family) -> Activation:
    key = "hidden_activation" if raw.get("hidden_activation") else "hidden_act"
    name = raw.get(key, family.activation)
    if family.activation is Activation.GELU_TANH and name == "gelu":
        # Gemma's first configurations said gelu and were trained with its approximation.
        return family.activation
    if name not in list(Activation):
        raise ModelFileError(f"{path}: {key} {name!r} is not supported; {' and '.join(Activation)} are")
    return Activation(name)


def _experts(raw: dict[str, Any]) -> Experts | None:
    count = raw.get("num_experts") or raw.get("num_local_experts")
    if not count:
        return None
    return Experts(
        count=int(count),
        per_token=int(raw["num_experts_per_tok"]),
        intermediate_size=int(raw.get("moe_intermediate_size") or raw["intermediate_size"]),
        # Mixtral always does, and has no such field.
        renormalised=bool(raw.get("norm_topk_prob", "moe_intermediate_size" not in raw)),
    )


def _kinds(path: Path, raw: dict[str, Any], family: Family, layers: int, has_experts: bool) -> tuple[LayerKind, ...]:
    """The layers' kinds, as short a pattern as there is."""
    windowed = _windowed(path, raw, family, layers)
    rotated = _rotated(raw, family, layers)
    dense = {int(index) for index in raw.get("mlp_only_layers") or ()}
    step = int(raw.get("decoder_sparse_step", 1))
    kinds = tuple(
        LayerKind(windowed[index], rotated[index], has_experts and index not in dense and (index + 1) % step == 0)
        for index in range(layers)
    )
    return kinds[:1] if len(set(kinds)) == 1 else kinds


def _windowed(path: Path, raw: dict[str, Any], family: Family, layers: int) -> list[bool]:
    on = raw.get("use_sliding_window", not family.windows_switched)
    if not raw.get("sliding_window") or not on or family.windows is Windows.NONE:
        return [False] * layers
    listed = raw.get("layer_types")
    if listed is not None:
        unknown = next((kind for kind in listed if kind not in _LAYER_TYPES), None)
        if unknown is not None:
            raise ModelFileError(f"{path}: layer_types: {unknown!r} is not supported; {', '.join(_LAYER_TYPES)} are")
        if len(listed) != layers:
            raise ValueError(f"layer_types has {len(listed)} entries for {layers} layers")
        return [_LAYER_TYPES[kind] for kind in listed]
    if family.windows is Windows.UNROTATED:
        return [not rotated for rotated in _rotated(raw, family, layers)]
    if family.windows is Windows.AFTER_MAX_WINDOW_LAYERS:
        first = int(raw.get("max_window_layers", 28))
        return [index >= first for index in range(layers)]
    every = {Windows.EVERY_OTHER: 2, Windows.ALL_BUT_EVERY_SIXTH: int(raw.get("sliding_window_pattern") or 6)}
    whole = every.get(family.windows)
    return [whole is None or (index + 1) % whole != 0 for index in range(layers)]


def _rotated(raw: dict[str, Any], family: Family, layers: int) -> list[bool]:
    if family.nope_interval is None:
        return [True] * layers
    listed = raw.get("no_rope_layers")
    if listed is not None:
        # In spite of its name a 1 says that the layer does rotate.
        return [bool(listed[index]) for index in range(layers)]
    interval = int(raw.get("no_rope_layer_interval", family.nope_interval))
    return [(index + 1) % interval != 0 for index in range(layers)]
