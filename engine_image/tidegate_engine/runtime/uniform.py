"""Random numbers from a counter, so that batching, preemption and restarts change nothing.

Source: SplitMix64, in Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, for the token at `position` of a request."""
    return (_mix(_mix(_mix(seed & _MASK) ^ choice) ^ position) >> 11) * 2.0**-53


def uniforms(seeds: NDArray[np.uint64], choices: NDArray[np.uint64], positions: NDArray[np.uint64]) -> Numbers:
    """`uniform` of many at once, float64 of the same length."""
    mixed = _mix_all(_mix_all(_mix_all(seeds) ^ choices) ^ positions)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix_all(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(_GOLDEN)  # arrays wrap at 2**64 without a word
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
