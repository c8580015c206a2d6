"""A model's shape, from GGUF metadata or from config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.files.gguf import GGUFFile

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""config.json's names, and the family whose code computes them."""

_BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a value of another kind than expected raises."""


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's stretched rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers that a network of the Llama family is built from. Raises ValueError where they make no sense."""

    architecture: str
    """llama (also SmolLM and Mistral), qwen2 or qwen3"""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    """tokens that a prompt and its answer may have together"""
    rope_theta: float
    norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool = False
    """whether the projections to queries, keys and values have a bias"""
    output_bias: bool = False
    """whether attention's output projection has one"""
    mlp_bias: bool = False
    eos_ids: tuple[int, ...] = ()
    rope_scaling: Llama3Scaling | None = None
    linear_rope_factor: float = 1.0

    @property
    def qk_norm(self) -> bool:
        """Whether each head's query and key are normalised before they are rotated."""
        return self.architecture == "qwen3"

    def __post_init__(self) -> None:
        sizes = (self.num_layers, self.hidden_size, self.num_heads, self.num_kv_heads, self.head_dim, self.vocab_size)
        positive = min(*sizes, self.intermediate_size, self.max_position) > 0
        if not positive or self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_layers} layers, hidden size {self.hidden_size}, {self.num_heads} heads over "
                f"{self.num_kv_heads} key/value heads of {self.head_dim} make no model"
            )


def from_gguf(file: GGUFFile) -> ModelConfig:
    """The configuration in a GGUF file's metadata. Raises ModelFileError for other architectures."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in ("llama", "qwen2", "qwen3"):
        raise ModelFileError(f"{file.path}: architecture {architecture!r} is not supported; llama, qwen2 and qwen3 are")

    def get(key: str, default: Any = None) -> Any:
        value = file.metadata.get(f"{architecture}.{key}", default)
        if value is None:
            raise ModelFileError(f"{file.path}: the metadata lacks {architecture}.{key}; convert the model again")
        return value

    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(f"{file.path}: the tensor token_embd.weight is missing; convert the model again")
    scaling = file.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ModelFileError(f"{file.path}: rope scaling {scaling!r} is not supported; none and linear are")
    eos = file.metadata.get("tokenizer.ggml.eos_token_id")
    try:
        heads, hidden = int(get("attention.head_count")), int(get("embedding_length"))
        head_dim = int(get("attention.key_length", hidden // max(heads, 1)))
        rotated = int(get("rope.dimension_count", head_dim))
        if rotated != head_dim or int(get("attention.value_length", head_dim)) != head_dim:
            raise ModelFileError(f"{file.path}: heads that are rotated in part or of two sizes are not supported")
        return ModelConfig(
            architecture=architecture,
            num_layers=int(get("block_count")),
            hidden_size=hidden,
            intermediate_size=int(get("feed_forward_length")),
            num_heads=heads,
            num_kv_heads=int(get("attention.head_count_kv", heads)),
            head_dim=head_dim,
            vocab_size=embedding.shape[0],
            max_position=int(get("context_length")),
            rope_theta=float(get("rope.freq_base", 10000.0)),
            norm_eps=float(get("attention.layer_norm_rms_epsilon")),
            tied_embeddings="output.weight" not in file.tensors,
            qkv_bias="blk.0.attn_q.bias" in file.tensors,
            output_bias="blk.0.attn_output.bias" in file.tensors,
            mlp_bias="blk.0.ffn_up.bias" in file.tensors,
            eos_ids=() if eos is None else (int(eos),),
            linear_rope_factor=float(get("rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0,
        )
    except _BROKEN as error:
        raise ModelFileError(
            f"{file.path}: the metadata does not say the model's shape ({error}); convert or download it again"
        ) from None


def from_folder(folder: Path) -> ModelConfig:
    """The configuration in a Hugging Face folder's config.json. Raises ModelFileError."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: does not exist; a model folder holds config.json and *.safetensors, download it whole"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read as JSON ({error}); download it again") from None
    try:
        return _from_json(path, raw)
    except _BROKEN as error:
        raise ModelFileError(f"{path}: does not say the model's shape ({error!r}); download it again") from None


def _from_json(path: Path, raw: dict[str, Any]) -> ModelConfig:
    name = raw["architectures"][0]
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        raise ModelFileError(f"{path}: architecture {name} is not supported; use one of {', '.join(ARCHITECTURES)}")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise ModelFileError(f"{path}: rope scaling {kind!r} is not supported; default, linear and llama3 are")
    if raw.get("quantization_config"):
        raise ModelFileError(f"{path}: its weights are quantized, which is not supported; use the original or a GGUF")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelFileError(f"{path}: hidden_act {raw['hidden_act']!r} is not supported; silu is")
    eos = raw.get("eos_token_id")
    heads = int(raw["num_attention_heads"])
    return ModelConfig(
        architecture=architecture,
        num_layers=int(raw["num_hidden_layers"]),
        hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]),
        num_heads=heads,
        num_kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or raw["hidden_size"] // heads),
        vocab_size=int(raw["vocab_size"]),
        max_position=_max_position(raw),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "qwen2" or bool(raw.get("attention_bias", False)),
        output_bias=architecture != "qwen2" and bool(raw.get("attention_bias", False)),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        rope_scaling=_llama3(rope) if kind == "llama3" else None,
        linear_rope_factor=float(rope["factor"]) if kind == "linear" else 1.0,
    )


def _llama3(rope: dict[str, Any]) -> Llama3Scaling:
    return Llama3Scaling(
        float(rope["factor"]),
        float(rope["low_freq_factor"]),
        float(rope["high_freq_factor"]),
        int(rope["original_max_position_embeddings"]),
    )


def _max_position(raw: dict[str, Any]) -> int:
    longest = int(raw.get("max_position_embeddings", 2048))
    window = raw.get("sliding_window")
    # Attention here sees everything, which equals a sliding window as long as nothing has slid out of it. Qwen's
    # configurations name a window and switch it off.
    if window and raw.get("use_sliding_window", True):
        return min(longest, int(window))
    return longest
