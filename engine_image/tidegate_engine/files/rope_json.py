"""Rotary embeddings as config.json describes them, in the form before and since transformers 5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_engine.files.config import LinearScaling, Llama3Scaling, LongRopeScaling, RopeScaling, YarnScaling
from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.files.families import Family

_KINDS = ("default", "linear", "llama3", "yarn", "longrope")
_OLD_NAMES = {"su": "longrope"}


@dataclass(frozen=True, slots=True)
class Ropes:
    """How fast a model's pairs turn, and how far."""

    theta: float
    scaling: RopeScaling | None
    local_theta: float | None
    rotated_part: float
    max_position: int


def read_ropes(path: Path, raw: dict[str, Any], family: Family, head_dim: int, max_position: int) -> Ropes:
    """Raises ModelFileError for a scaling that is not supported."""
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope: dict[str, Any] = given
    local: dict[str, Any] = {}
    if "full_attention" in given or "sliding_attention" in given:
        rope, local = given.get("full_attention") or {}, given.get("sliding_attention") or {}
        if local.get("rope_type", "default") != "default":
            raise ModelFileError(f"{path}: rope scaling of windowed layers is not supported; use the default")
    local_theta = None
    if family.local_rope_theta is not None:
        local_theta = float(local.get("rope_theta") or raw.get("rope_local_base_freq") or family.local_rope_theta)
    kind = rope.get("rope_type", rope.get("type", "default"))
    kind = _OLD_NAMES.get(kind, kind)
    if family.fused and kind == "yarn":
        kind = "longrope"  # Phi-3's first configurations called it so
    if kind not in _KINDS:
        raise ModelFileError(f"{path}: rope scaling {kind!r} is not supported; {', '.join(_KINDS)} are")
    original = int(
        rope.get("original_max_position_embeddings") or raw.get("original_max_position_embeddings") or max_position
    )
    scaling: RopeScaling | None = None
    if kind == "linear":
        scaling = LinearScaling(float(rope["factor"]))
    elif kind == "llama3":
        scaling = Llama3Scaling(
            float(rope["factor"]), float(rope["low_freq_factor"]), float(rope["high_freq_factor"]), original
        )
    elif kind == "yarn":
        scaling = _yarn(rope, original, max_position)
        # Qwen's cards tell users to add a factor and to leave max_position_embeddings as it was.
        max_position = max(max_position, int(original * scaling.factor))
    elif kind == "longrope":
        scaling = _longrope(rope, original, max_position)
    return Ropes(
        theta=float(rope.get("rope_theta") or raw.get("rope_theta") or family.rope_theta),
        scaling=scaling,
        local_theta=local_theta,
        rotated_part=float(rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0),
        max_position=max_position,
    )


def _yarn(rope: dict[str, Any], original: int, max_position: int) -> YarnScaling:
    factor = float(rope.get("factor") or max_position / original)
    gain = rope.get("attention_factor")
    if gain is None:
        scale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
        gain = yarn_gain(factor)
        if scale and all_dim:
            gain = yarn_gain(factor, float(scale)) / yarn_gain(factor, float(all_dim))
    return YarnScaling(
        factor=factor,
        original_max_position=original,
        beta_fast=float(rope.get("beta_fast") or 32),
        beta_slow=float(rope.get("beta_slow") or 1),
        gain=float(gain),
        truncate=bool(rope.get("truncate", True)),
    )


def yarn_gain(factor: float, scale: float = 1.0) -> float:
    """YaRN's recommended gain, of which the square sharpens the softmax."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(rope: dict[str, Any], original: int, max_position: int) -> LongRopeScaling:
    gain = rope.get("attention_factor")
    if gain is None:
        gain = longrope_gain(float(rope.get("factor") or max_position / original), original)
    return LongRopeScaling(
        tuple(map(float, rope["short_factor"])), tuple(map(float, rope["long_factor"])), original, float(gain)
    )


def longrope_gain(factor: float, original: int) -> float:
    """LongRoPE's gain for contexts stretched by a factor."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
