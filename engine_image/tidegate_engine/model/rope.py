"""Rotary position embeddings: how fast each pair of a head turns, and the ways models stretch that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tidegate_engine.files.config import (
    LayerKind,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelConfig,
    YarnScaling,
)


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """How the pairs of a head turn; layers that turn alike share one, and its angles."""

    frequencies: Tensor
    """float32 [D / 2], angles per position; 0 for pairs that are not rotated, which come last"""
    gain: Tensor | None = None
    """float32 [D / 2], of cosines and sines; None: one"""

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines float32 [T, D / 2] of positions [T].

        Once a step, for its tokens: a table of 131,072 positions would cost 67 MB and the time to fill it.
        """
        # Angles as everybody rounds them; what is taken of them in double precision, of which a float32 has the same
        # bits on every processor. MKL's float32 cosine has not, and a greedy text then differs between machines.
        angles = torch.outer(positions.to(torch.float32), self.frequencies).to(torch.float64)
        cos, sin = angles.cos().to(torch.float32), angles.sin().to(torch.float32)
        return (cos, sin) if self.gain is None else (cos * self.gain, sin * self.gain)

    def to(self, device: str) -> Rotary:
        """The same on a device."""
        return Rotary(self.frequencies.to(device), None if self.gain is None else self.gain.to(device))


def rotary(config: ModelConfig, kind: LayerKind, factors: Tensor | None = None) -> Rotary:
    """That of a kind of layer; `factors` [rotated / 2], which GGUF files may have, divide the frequencies."""
    pairs, rotated = config.head_dim // 2, config.rotated
    if not kind.rotated:
        return Rotary(torch.zeros(pairs))
    local = kind.windowed and config.local_rope_theta is not None
    theta = config.local_rope_theta if local and config.local_rope_theta is not None else config.rope_theta
    exponents = torch.arange(0, rotated, 2, dtype=torch.int64).to(torch.float32) / rotated
    frequencies = 1.0 / theta**exponents
    if local:
        return Rotary(_padded(frequencies, pairs, 0.0))
    match config.rope_scaling:
        case LinearScaling(factor):
            frequencies = frequencies / factor
        case Llama3Scaling() as scaling:
            frequencies = _llama3(frequencies, scaling)
        case YarnScaling() as scaling:
            frequencies = _yarn(frequencies, scaling, theta)
        case LongRopeScaling() as scaling:
            longer = config.max_position > scaling.original_max_position
            frequencies = frequencies / torch.tensor(scaling.long if longer else scaling.short)
    if factors is not None:
        frequencies = frequencies / factors.to("cpu", torch.float32)
    gain = config.rope_gain
    gains = None if gain == 1.0 else _padded(torch.full_like(frequencies, gain), pairs, 1.0)
    return Rotary(_padded(frequencies, pairs, 0.0), gains)


def rotated_first(head_dim: int, rotated: int) -> Tensor:
    """The order of a head's elements in which those rotated are paired across its halves, as the kernels pair them.

    Where 4 of 8 are rotated, 0 with 2 and 1 with 3: 0 1 4 5 2 3 6 7. Scores do not depend on the order.
    """
    first, second, rest = torch.split(torch.arange(head_dim), [rotated // 2, rotated // 2, head_dim - rotated])
    return torch.cat((first, rest[: len(rest) // 2], second, rest[len(rest) // 2 :]))


def _padded(values: Tensor, length: int, value: float) -> Tensor:
    return F.pad(values, (0, length - len(values)), value=value)


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


def _yarn(frequencies: Tensor, scaling: YarnScaling, theta: float) -> Tensor:
    # Source: section 3.2 of the paper. `pair` is where a wave turns so often within the old context.
    pairs = len(frequencies)

    def pair(turns: float) -> float:
        return pairs * math.log(scaling.original_max_position / (turns * 2 * math.pi)) / math.log(theta)

    low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    if low == high:
        high += 0.001
    stretched = ((torch.arange(pairs, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return frequencies / scaling.factor * stretched + frequencies * (1 - stretched)
