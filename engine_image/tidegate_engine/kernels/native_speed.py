"""How fast the compiled kernels are here, measured in a few milliseconds when they are chosen."""

from __future__ import annotations

import time

import torch

from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.native import PackedLinear, PackedMatrix, Team
from tidegate_engine.kernels.native_library import Isa, available

_ROWS, _OUTPUTS, _INPUTS = 16, 1024, 512
_PASSES = 4


def choose_fastest(team: Team) -> str:
    """Let the team use the instruction set that is fastest on this processor; what was measured, for the log.

    All give the same bits, so nothing but the speed depends on the outcome.
    """
    codes = torch.zeros(_OUTPUTS, _INPUTS, dtype=torch.uint8)
    scales = torch.ones(_OUTPUTS, _INPUTS // 32)
    layer = PackedLinear(PackedMatrix(team, GroupedMatrix(codes, scales, scales, 4)), None)
    x = torch.ones(_ROWS, _INPUTS)
    rates: dict[Isa, float] = {}
    for isa in available():
        team.use(isa)
        rates[isa] = _ROWS * _OUTPUTS * _INPUTS / _fastest_pass(layer, x)
    best = max(rates, key=lambda isa: rates[isa])
    team.use(best)
    return ", ".join(f"{isa.name} {rate / 1e9:.0f}" for isa, rate in rates.items()) + " billion products/s"


def read_rate(layer: PackedLinear) -> float:
    """Bytes a second at which one token's pass reads a layer's weights."""
    return layer.matrix.num_bytes / _fastest_pass(layer, torch.ones(1, layer.matrix.shape[1]))


def _fastest_pass(layer: PackedLinear, x: torch.Tensor) -> float:
    seconds = []
    for _ in range(_PASSES):
        began = time.perf_counter()
        layer(x)
        seconds.append(time.perf_counter() - began)
    return min(seconds)
