"""Rotary position embeddings: how fast each pair of a head turns, and the ways models stretch that."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tidegate_engine.files.config import Llama3Scaling, ModelConfig


def rope_frequencies(config: ModelConfig, factors: Tensor | None = None) -> Tensor:
    """Angles per position, float32 [head_dim / 2]; `factors` [head_dim / 2], which GGUF files may have, divide them."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_scaling is not None:
        frequencies = _llama3(frequencies, config.rope_scaling)
    if factors is not None:
        frequencies = frequencies / factors.to("cpu", torch.float32)
    return frequencies / config.linear_rope_factor


def _llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    # Source: Llama 3.1's apply_scaling; waves longer than the old context are stretched, short ones are not.
    wavelengths = 2 * math.pi / frequencies
    longest = scaling.original_max_position / scaling.low_freq_factor
    shortest = scaling.original_max_position / scaling.high_freq_factor
    span = scaling.high_freq_factor - scaling.low_freq_factor
    smooth = (scaling.original_max_position / wavelengths - scaling.low_freq_factor) / span
    between = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    stretched = torch.where(wavelengths > longest, frequencies / scaling.factor, frequencies)
    return torch.where((wavelengths <= longest) & (wavelengths >= shortest), between, stretched)
