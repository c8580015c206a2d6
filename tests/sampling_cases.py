"""Rows of logits with what they are sampled by, and how often two implementations choose different tokens."""

from __future__ import annotations

import torch
from kernel_guards import Guards
from tidegate_engine.kernels import sampling


def differing_tokens(vocabulary: int, rows: int, device: str = "cpu") -> int:
    """Rows, of all kinds of parameters mixed, in which Triton chooses another token than the plain implementation."""
    from tidegate_engine.kernels import triton_sampling

    made = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn((rows, vocabulary), generator=made) * 3
    logits[::5] = (logits[::5] * 2).round() / 2  # many are equal
    logits[3::7, ::2] = float("-inf")  # a grammar or a bias forbids every other token

    def one_of(*values: float) -> torch.Tensor:
        return torch.tensor(values)[torch.randint(len(values), (rows,), generator=made)]

    given = {
        "temperature": one_of(0.0, 0.7, 1.0, 1e-5, 1.5),
        "top_k": one_of(0, 0, 1, 3, 50, vocabulary, vocabulary + 9).to(torch.int64),
        "top_p": one_of(1.0, 1.0, 0.9, 0.5, 1e-6, 0.0),
        "min_p": one_of(0.0, 0.0, 0.1, 1.0),
        "uniform": torch.rand(rows, dtype=torch.float64, generator=made),
    }
    given["uniform"][:2] = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    guards = Guards()
    placed = {name: guards.place(tensor.to(device)) for name, tensor in given.items()}
    wanted = sampling.sample(logits.clone(), **given)
    with guards.around_allocations():
        found = triton_sampling.sample(guards.place(logits.to(device)), **placed)
    guards.check()
    return int((found.cpu() != wanted).sum())


def tokens_of_damaged_rows(device: str = "cpu") -> list[int]:
    """What is drawn from 70 logits that are not numbers."""
    from tidegate_engine.kernels import triton_sampling

    ones = torch.ones(3, device=device)
    found = triton_sampling.sample(
        torch.full((3, 70), float("nan"), device=device),
        torch.tensor([0.0, 1.0, 1.0], device=device),
        torch.tensor([0, 0, 5], device=device),
        ones,
        ones * 0,
        ones.to(torch.float64) * 0.5,
    )
    return list(found.tolist())
