"""A model's shape from a GGUF file's metadata; keys and defaults are llama.cpp's."""

from __future__ import annotations

from array import array
from typing import Any

from tidegate_engine.files.config import (
    Experts,
    LayerKind,
    LinearScaling,
    LongRopeScaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
)
from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.files.families import FAMILIES, GGUF, Family, Windows
from tidegate_engine.files.gguf import GGUFFile
from tidegate_engine.files.rope_json import longrope_gain, yarn_gain

_BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a value of another kind than expected raises."""
_SCALINGS = ("none", "linear", "yarn", "longrope")
_SCORES_BY_HIDDEN_SIZE = (("gemma2", 46), ("gemma3", 62))
"""The 27B models, known by their layers: they divide scores by the root of hidden size / heads, and no key says so."""


def from_gguf(file: GGUFFile) -> ModelConfig:
    """The configuration in a GGUF file's metadata. Raises ModelFileError for other architectures."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in GGUF:
        raise ModelFileError(f"{file.path}: architecture {architecture!r} is not supported; {', '.join(GGUF)} are")
    try:
        return _Reader(file, architecture).config()
    except _BROKEN as error:
        raise ModelFileError(
            f"{file.path}: the metadata does not say the model's shape ({error}); convert or download it again"
        ) from None


class _Reader:
    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self._file, self._architecture = file, architecture
        self._family: Family = FAMILIES[architecture]

    def get(self, key: str, default: Any = None) -> Any:
        value = self._file.metadata.get(f"{self._architecture}.{key}", default)
        if value is None:
            raise ModelFileError(
                f"{self._file.path}: the metadata lacks {self._architecture}.{key}; convert the model again"
            )
        return value

    def number(self, key: str) -> float | None:
        """A number that may be missing; 0 means the same."""
        return float(self.get(key, 0.0)) or None

    def config(self) -> ModelConfig:
        tensors = self._file.tensors
        embedding = tensors.get("token_embd.weight")
        if embedding is None:
            raise ModelFileError(f"{self._file.path}: the tensor token_embd.weight is missing; convert the model again")
        eos = self._file.metadata.get("tokenizer.ggml.eos_token_id")
        heads, hidden, layers = (
            int(self.get(key)) for key in ("attention.head_count", "embedding_length", "block_count")
        )
        head_dim = int(self.get("attention.key_length", hidden // max(heads, 1)))
        if int(self.get("attention.value_length", head_dim)) != head_dim:
            raise ModelFileError(
                f"{self._file.path}: keys and values of two sizes are not supported; use another model"
            )
        rotated = int(self.get("rope.dimension_count", head_dim))
        if rotated != head_dim and self._family.permuted:
            raise ModelFileError(
                f"{self._file.path}: heads that are rotated in part are not supported in {self._architecture}"
            )
        window = int(self.get("attention.sliding_window", 0)) if self._family.windows is not Windows.NONE else 0
        experts = self._experts()
        scores_by_hidden_size = (self._architecture, layers) in _SCORES_BY_HIDDEN_SIZE
        return ModelConfig(
            architecture=self._architecture,
            num_layers=layers,
            hidden_size=hidden,
            intermediate_size=int(self.get("feed_forward_length", experts.intermediate_size if experts else None)),
            num_heads=heads,
            num_kv_heads=int(self.get("attention.head_count_kv", heads)),
            head_dim=head_dim,
            vocab_size=embedding.shape[0],
            max_position=int(self.get("context_length")),
            rope_theta=float(self.get("rope.freq_base", self._family.rope_theta)),
            norm_eps=float(self.get("attention.layer_norm_rms_epsilon")),
            tied_embeddings="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            output_bias="blk.0.attn_output.bias" in tensors,
            mlp_bias="blk.0.ffn_up.bias" in tensors,
            eos_ids=() if eos is None else (int(eos),),
            rope_scaling=self._scaling(),
            local_rope_theta=self._family.local_rope_theta
            and float(self.get("rope.freq_base_swa", self._family.local_rope_theta)),
            rotated_size=None if rotated == head_dim else rotated,
            query_scalar=hidden / heads if scores_by_hidden_size else None,
            window=window or None,
            pattern=self._pattern(bool(window), experts is not None),
            attention_softcap=self.number("attn_logit_softcapping"),
            logit_softcap=self.number("final_logit_softcapping"),
            activation=self._family.activation,
            experts=experts,
        )

    def _experts(self) -> Experts | None:
        count = int(self.get("expert_count", 0))
        if not count:
            return None
        width = self.get("expert_feed_forward_length", self.get("feed_forward_length", 0))
        # Mixtral and Qwen3-MoE, the ones that are read, both let the chosen experts' weights add up to one.
        return Experts(count, int(self.get("expert_used_count")), int(width), renormalised=True)

    def _pattern(self, windowed: bool, experts: bool) -> tuple[LayerKind, ...]:
        """As short as there is: a corrupt number of layers may be in the billions."""
        if self._family.windows_switched:
            windowed = False  # llama.cpp knows no window in these
        usual = LayerKind(windowed, experts=experts)
        whole = LayerKind(False, experts=experts)
        if windowed and self._family.windows is Windows.EVERY_OTHER:
            return usual, whole
        if windowed and self._family.windows is Windows.ALL_BUT_EVERY_SIXTH:
            return (*[usual] * 5, whole)
        if self._family.nope_interval is not None:
            return (*[usual] * (self._family.nope_interval - 1), LayerKind(windowed, rotated=False, experts=experts))
        return (usual,)

    def _scaling(self) -> RopeScaling | None:
        kind = self.get("rope.scaling.type", "none")
        if kind not in _SCALINGS:
            raise ModelFileError(
                f"{self._file.path}: rope scaling {kind!r} is not supported; {', '.join(_SCALINGS)} are"
            )
        longest = int(self.get("context_length"))
        original = int(self.get("rope.scaling.original_context_length", longest))
        if "rope_factors_long.weight" in self._file.tensors:
            gain = self.number("rope.scaling.attn_factor") or longrope_gain(longest / original, original)
            return LongRopeScaling(self._factors("short"), self._factors("long"), original, gain)
        if kind == "linear":
            return LinearScaling(float(self.get("rope.scaling.factor", 1.0)))
        if kind == "yarn":
            factor = float(self.get("rope.scaling.factor"))
            gain = yarn_gain(factor) * float(self.get("rope.scaling.attn_factor", 1.0))
            fast, slow = self.get("rope.scaling.yarn_beta_fast", 32.0), self.get("rope.scaling.yarn_beta_slow", 1.0)
            return YarnScaling(factor, original, float(fast), float(slow), gain)
        return None

    def _factors(self, which: str) -> tuple[float, ...]:
        tensor = self._file.tensors[f"rope_factors_{which}.weight"]
        if tensor.type.name != "F32":
            raise ValueError(f"rope_factors_{which} are stored as {tensor.type.name}")
        return tuple(array("f", bytes(tensor.data)))
