"""A mixture of experts gives a row what it gives it alone."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from tidegate_engine.files.config import Experts
from tidegate_engine.kernels.reference import silu_and_mul
from tidegate_engine.model.mlp import GatedMLP, MixtureOfExperts


def _mixture(renormalised: bool) -> MixtureOfExperts:
    made = torch.Generator().manual_seed(3)

    def linear(rows: int, columns: int) -> partial[torch.Tensor]:
        return partial(F.linear, weight=torch.randn(rows, columns, generator=made) * 0.3)

    experts = [GatedMLP(linear(20, 16), linear(16, 10), silu_and_mul) for _ in range(6)]
    return MixtureOfExperts(linear(6, 16), experts, Experts(6, 2, 10, renormalised))


def test_neighbours_change_nothing() -> None:
    mixture = _mixture(True)
    rows = torch.randn(40, 16, generator=torch.Generator().manual_seed(4))
    together = mixture(rows)
    alone = torch.cat([mixture(row) for row in rows.split(1)])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-6)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(mixture(rows[order]), together[order], atol=1e-6, rtol=1e-6)


def test_weights_that_add_up_to_one_give_more_than_the_routers_own() -> None:
    rows = torch.randn(5, 16, generator=torch.Generator().manual_seed(4))
    probabilities = _mixture(False).router(rows).softmax(dim=-1).topk(2).values.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(_mixture(True)(rows) * probabilities, _mixture(False)(rows))


def test_no_rows_at_all() -> None:
    assert _mixture(True)(torch.empty(0, 16)).shape == (0, 16)
