"""What follows attention in a layer: a gated MLP, or a mixture of such experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tidegate_engine.files.config import Experts
from tidegate_engine.kernels.interface import Linear
from tidegate_engine.model.adapters import Chosen, LayerAdapters, add_low_rank


def gelu_tanh_and_mul(x: Tensor) -> Tensor:
    """Gate and up side by side [T, 2 I] to gelu(gate) * up [T, I], by gelu's tanh approximation."""
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh").mul_(up)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """This rank's share of an MLP: some of its inner columns."""

    gate_up: Linear
    down: Linear
    gated: Callable[[Tensor], Tensor]
    """gate and up side by side [T, 2 I] to [T, I]"""

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] to this rank's part of the sum [T, H]."""
        return self.down(self.gated(self.gate_up(x)))

    def adapted(self, x: Tensor, adapters: LayerAdapters, chosen: Chosen) -> Tensor:
        """The same where some rows have adapters."""
        inner = self.gated(add_low_rank(self.gate_up(x), x, adapters.gate_up, chosen))
        return add_low_rank(self.down(inner), inner, adapters.down, chosen)


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Every token goes to a few experts, of each of which this rank has a share. Source: Shazeer et al., 2017."""

    router: Linear
    experts: list[GatedMLP]
    shape: Experts

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] to this rank's part of the sum [T, H]; a row's experts are added in their own order."""
        probabilities = self.router(x).softmax(dim=-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(self.shape.per_token, dim=-1)
        if self.shape.renormalised:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        # Tokens sorted by expert, so that each expert's matrices are read once for all that go to it.
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=self.shape.count).tolist()
        rows = order // self.shape.per_token
        scales = weights.flatten()[order].to(x.dtype).unsqueeze(1)
        out = torch.zeros_like(x)
        places = zip(torch.split(rows, counts), torch.split(scales, counts), strict=True)
        for expert, (row, scale) in zip(self.experts, places, strict=True):
            if len(row):
                out.index_add_(0, row, expert(x[row]) * scale)
        return out
