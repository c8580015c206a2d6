"""Inputs for kernels, and the check that a set of them computes what the plain reference does."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from tidegate_engine.kernels.interface import AttentionSpec, Kernels, Paging
from tidegate_engine.kernels.reference import REFERENCE

TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Step:
    """A step's requests: how many new tokens each has, and how many its context then has."""

    new: tuple[int, ...]
    context: tuple[int, ...]
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 16
    block_size: int = 4
    window: int | None = None
    softcap: float | None = None


STEPS = {
    "a prompt from nothing": Step((5,), (5,)),
    "a prompt of one token": Step((1,), (1,)),
    "a prompt that fills its blocks": Step((8,), (8,)),
    "prompts of odd lengths, six heads over two": Step((7, 13, 1), (7, 13, 1), heads=6, kv_heads=2),
    "a chunk after cached tokens": Step((5, 6), (14, 35)),
    "a chunk longer than a tile": Step((45,), (50,)),
    "decoding at different lengths": Step((1, 1, 1, 1), (3, 4, 17, 1)),
    "decoding contexts long enough to be split": Step((1, 1), (200, 66), block_size=16),
    "prompts and decoding in one step": Step((1, 6, 1, 3), (9, 6, 2, 40)),
    "as many key heads as query heads": Step((4, 1), (6, 9), heads=3, kv_heads=3),
    "four heads to a key": Step((3, 1), (3, 12), heads=8, kv_heads=2),
    "SmolLM2's heads": Step((4, 1), (20, 33), heads=9, kv_heads=3, head_dim=64, block_size=16),
    "heads of 128": Step((3, 1), (3, 19), heads=2, kv_heads=1, head_dim=128, block_size=16),
    "a window that ends within blocks": Step((9, 1, 1, 4), (9, 23, 3, 30), window=6),
    "decoding in windows shorter than a block, and longer than a context": Step((1, 1, 1), (40, 2, 13), window=3),
    "decoding in a window that splits": Step((1, 1), (200, 130), block_size=16, window=150),
    "a chunk longer than a tile and than its window": Step((45,), (60,), window=11),
    "capped scores": Step((5, 1), (12, 33), heads=4, kv_heads=2, softcap=0.7),
    "capped scores in a window, decoding": Step((1, 1), (9, 33), heads=4, kv_heads=2, window=8, softcap=0.7),
    "heads of 80, no power of two": Step((3, 1), (5, 7), heads=2, kv_heads=1, head_dim=80),
}


def interpret_triton() -> None:
    """Make this process's Triton run on the CPU; must happen before Triton is first imported."""
    os.environ["TRITON_INTERPRET"] = "1"


def kernel_set(name: str, device: str) -> Kernels:
    """The set called "cpu" or "triton"."""
    if name == "cpu":
        from tidegate_engine.kernels.cpu import cpu_kernels

        return cpu_kernels()
    from tidegate_engine.kernels.triton_kernels import triton_kernels

    return triton_kernels(device)


def attention_error(name: str, step: Step, dtype: str, device: str = "cpu") -> float:
    """Largest difference from the reference, NaN where one of them is; unused cache is filled with garbage."""
    made = torch.Generator().manual_seed(sum(step.new) * 1000 + sum(step.context))
    kind = getattr(torch, dtype)
    needed = [-(-length // step.block_size) for length in step.context]
    blocks = sum(needed) + 3
    shape = (blocks, step.kv_heads, step.block_size, step.head_dim)
    caches = [torch.randn(shape, generator=made) for _ in range(2)]
    order = torch.randperm(blocks, generator=made)[: sum(needed)].tolist()
    tables = torch.zeros(len(needed), max(needed), dtype=torch.int32)
    used = torch.zeros(blocks, step.block_size, dtype=torch.bool)
    for row, (count, length) in enumerate(zip(needed, step.context, strict=True)):
        tables[row, :count] = torch.tensor(order[:count], dtype=torch.int32)
        for position in range(length):
            used[order[position // step.block_size], position % step.block_size] = True
        del order[:count]
    # Torch's own attention multiplies what it masks by zero: NaN is more than the CPU's set is asked to bear.
    garbage = float("nan") if name == "triton" else 1e4
    caches = [cache.masked_fill(~used[:, None, :, None], garbage).to(kind).to(device) for cache in caches]
    width = step.heads + 2 * step.kv_heads  # queries come as a view into the fused projection
    query = torch.randn(sum(step.new), width, step.head_dim, generator=made).to(kind).to(device)[:, : step.heads]
    starts = torch.tensor([0, *torch.tensor(step.new).cumsum(0).tolist()], dtype=torch.int32)
    lengths = torch.tensor(step.context, dtype=torch.int32)
    paging = Paging(
        starts.to(device), lengths.to(device), tables.to(device), max(step.new), max(step.context), step.block_size
    )
    spec = AttentionSpec(step.head_dim**-0.5, step.window, step.softcap)
    wanted = REFERENCE.plan_attention(paging, spec)(query, *caches)
    attend = kernel_set(name, device).plan_attention(paging, spec)
    attend(query, *caches)  # a plan is used for every layer: twice must be as good as once
    return _difference(attend(query, *caches), wanted)


def rms_norm_error(name: str, shape: tuple[int, ...], dtype: str, device: str = "cpu") -> float:
    """Of a view with gaps between its rows."""
    x, weight = _random((*shape[:-2], shape[-2] + 1, shape[-1]), dtype, device), _random(shape[-1:], dtype, device)
    x = x[..., :-1, :] if len(shape) == 3 else x[:-1]
    kernels = kernel_set(name, device)
    return _difference(kernels.rms_norm(x, weight, 1e-5), REFERENCE.rms_norm(x, weight, 1e-5))


def add_rms_norm_error(name: str, shape: tuple[int, int], dtype: str, device: str = "cpu") -> float:
    """Of both results."""
    x, residual = _random((2, *shape), dtype, device)
    weight = _random(shape[1:], dtype, device)
    wanted = REFERENCE.add_rms_norm(x, residual.clone(), weight, 1e-5)
    found = kernel_set(name, device).add_rms_norm(x, residual.clone(), weight, 1e-5)
    return max(_difference(one, other) for one, other in zip(found, wanted, strict=True))


def rotate_error(name: str, shape: tuple[int, int, int], dtype: str, device: str = "cpu") -> float:
    """Of queries and keys in place; what lies behind them (values) must not change."""
    tokens, heads, width = shape
    wanted = _random((tokens, heads + 2, width), dtype, device)
    found = wanted.clone()
    angles = _random((tokens, width // 2), "float32", device)
    REFERENCE.rotate(wanted[:, :heads], angles.cos(), angles.sin())
    kernel_set(name, device).rotate(found[:, :heads], angles.cos(), angles.sin())
    return _difference(found, wanted)


def write_kv_error(name: str, slots: list[int], shape: tuple[int, int, int, int], dtype: str, device: str) -> float:
    """Of the whole caches [blocks, heads, block size, width], the places that nothing is written to included."""
    wanted = _random((2, *shape), dtype, device)
    found = wanted.clone()
    fused = _random((len(slots), 3 * shape[1], shape[3]), dtype, device)
    key, value = fused[:, shape[1] : 2 * shape[1]], fused[:, 2 * shape[1] :]
    places = torch.tensor(slots, dtype=torch.int64, device=device)
    REFERENCE.write_kv(key, value, *wanted, places)
    kernel_set(name, device).write_kv(key, value, *found, places)
    return _difference(found, wanted)


def _random(shape: tuple[int, ...], dtype: str, device: str) -> torch.Tensor:
    made = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=made).to(getattr(torch, dtype)).to(device)


def _difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.to(torch.float32) - wanted.to(torch.float32)).abs().max())
