"""Random numbers from a counter, so that batching, preemption and restarts change nothing.

Source: SplitMix64, in Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
"""

from __future__ import annotations

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
