"""Low-rank adapters beside the weights: several in one step, each for the rows of its requests.

Legend: r rank, K inputs, N outputs of this rank's share of a projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to some columns of a projection's result."""

    down: Tensor
    """[r, K]"""
    up: Tensor
    """[columns, r], scaled"""
    columns: slice


Additions = dict[int, list[LowRank]]
"""To one projection, by adapter."""
Chosen = Sequence[tuple[int, Tensor]]
"""Adapters that a step uses, each with its rows, int64; the others are the model's own."""


@dataclass(frozen=True, slots=True)
class LayerAdapters:
    """All adapters' additions to one layer."""

    qkv: Additions = field(default_factory=dict)
    output: Additions = field(default_factory=dict)
    gate_up: Additions = field(default_factory=dict)
    down: Additions = field(default_factory=dict)


def add_low_rank(out: Tensor, x: Tensor, additions: Additions, chosen: Chosen) -> Tensor:
    """`out` [T, N], the projection of `x` [T, K], with what the rows' adapters add; in place."""
    for adapter, rows in chosen:
        for part in additions.get(adapter, ()):
            added = F.linear(F.linear(x[rows], part.down), part.up)
            out[:, part.columns].index_add_(0, rows, added.to(out.dtype))
    return out
