"""Inputs for kernels, and the check that a set of them computes what the plain reference does."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from kernel_guards import Guards
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import AttentionSpec, HeadNorms, Kernels, KVScales, Paging
from tidegate_engine.kernels.kv_codes import encode
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


@dataclass(frozen=True)
class Heads:
    """What one step writes to three blocks of four tokens: query and key heads, and the slot of each token."""

    queries: int
    keys: int
    width: int
    slots: tuple[int, ...]


HEADS = {
    "one token": Heads(2, 1, 16, (0,)),
    "SmolLM2, scattered": Heads(9, 3, 64, (7, 3, 4, 11)),
    "heads of 80, every slot": Heads(2, 2, 80, tuple(range(12))),
}

STEPS = {
    "a prompt from nothing": Step((5,), (5,)),
    "a prompt of one token": Step((1,), (1,)),
    "a prompt that fills its blocks": Step((8,), (8,)),
    "prompts of odd lengths, six heads over two": Step((7, 13, 1), (7, 13, 1), heads=6, kv_heads=2),
    "a chunk after cached tokens": Step((5, 6), (14, 35)),
    "a chunk longer than a tile": Step((45,), (50,)),
    "decoding at different lengths": Step((1, 1, 1, 1), (3, 4, 17, 1)),
    "decoding contexts long enough to be split": Step((1, 1), (200, 66), block_size=16),
    "a few new tokens each, as speculation has": Step((3, 1, 4), (130, 9, 71), block_size=16),
    "a long prompt beside split decoding": Step((40, 1, 2), (77, 200, 66), block_size=16),
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


def attention_error(name: str, step: Step, dtype: str, device: str = "cpu", codes: str | None = None) -> float:
    """Largest difference from the reference, NaN where one of them is; unused cache is filled with garbage.

    `codes` is the type of a cache that holds codes and scales.
    """
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
    guards = Guards()
    # Torch's own attention multiplies what it masks by zero: NaN is more than the CPU's set is asked to bear.
    garbage = float("nan") if name == "triton" else 1e4
    unused = ~used[:, None, :, None]
    scales = None
    if codes is None:
        caches = [guards.place(cache.masked_fill(unused, garbage).to(kind).to(device)) for cache in caches]
    else:
        coded = [encode(cache, getattr(torch, codes)) for cache in caches]
        caches = [guards.place(code.to(device)) for code, _ in coded]
        by_place = [scale.masked_fill(unused.squeeze(-1), garbage) for _, scale in coded]
        scales = KVScales(*(guards.place(scale.to(device)) for scale in by_place))
    width = step.heads + 2 * step.kv_heads  # queries come as a view into the fused projection
    fused = torch.randn(sum(step.new), width, step.head_dim, generator=made).to(kind).to(device)
    query = guards.place(fused)[:, : step.heads]
    starts = torch.tensor([0, *torch.tensor(step.new).cumsum(0).tolist()], dtype=torch.int32)
    lengths = torch.tensor(step.context, dtype=torch.int32)
    places = [guards.place(tensor.to(device)) for tensor in (starts, lengths, tables)]
    paging = Paging(*places, max(step.new), max(step.context), step.block_size)
    spec = AttentionSpec(step.head_dim**-0.5, step.window, step.softcap)
    wanted = REFERENCE.plan_attention(paging, spec)(query, *caches, scales)
    with guards.around_allocations():
        attend = kernel_set(name, device).plan_attention(paging, spec)
        attend(query, *caches, scales)  # a plan is used for every layer: twice must be as good as once
        found = attend(query, *caches, scales)
    guards.check()
    return _difference(found, wanted)


def rms_norm_error(name: str, shape: tuple[int, ...], dtype: str, device: str = "cpu") -> float:
    """Of a view with gaps between its rows."""
    guards = Guards()
    x = guards.place(_random((*shape[:-2], shape[-2] + 1, shape[-1]), dtype, device))
    weight = guards.place(_random(shape[-1:], dtype, device))
    x = x[..., :-1, :] if len(shape) == 3 else x[:-1]
    with guards.around_allocations():
        found = kernel_set(name, device).rms_norm(x, weight, 1e-5)
    guards.check()
    return _difference(found, REFERENCE.rms_norm(x, weight, 1e-5))


def add_rms_norm_error(name: str, shape: tuple[int, int], dtype: str, device: str = "cpu") -> float:
    """Of both results."""
    guards = Guards()
    x, residual = (guards.place(part) for part in _random((2, *shape), dtype, device))
    weight = guards.place(_random(shape[1:], dtype, device))
    wanted = REFERENCE.add_rms_norm(x, residual.clone(), weight, 1e-5)
    with guards.around_allocations():
        found = kernel_set(name, device).add_rms_norm(x, residual, weight, 1e-5)
    guards.check()
    return max(_difference(one, other) for one, other in zip(found, wanted, strict=True))


def rotate_and_write_error(
    name: str, heads: Heads, dtype: str, normed: bool = False, device: str = "cpu", codes: str | None = None
) -> float:
    """Of the queries and of the whole caches, the places that nothing is written to included.

    Where the caches hold codes, in units of the last place: two roundings may fall on either side of it.
    """
    guards = Guards()
    slots = torch.tensor(heads.slots, dtype=torch.int64, device=device)
    stored = getattr(torch, codes or dtype)
    angles = _random((len(slots), heads.width // 2), "float32", device)
    weights = _random((2, heads.width), dtype, device)
    norms = HeadNorms(guards.place(weights[0]), guards.place(weights[1]), 1e-6) if normed else None
    fused = _random((len(slots), heads.queries + 2 * heads.keys, heads.width), dtype, device)
    shape = (3, heads.keys, 4, heads.width)
    before = _random((2, *shape), "float32", device)
    results = []
    for kernels in (kernel_set(name, device), REFERENCE):
        caches = [guards.place(cache.to(stored)) for cache in before]
        scales = KVScales(*(guards.place(cache[..., 0].abs()) for cache in before)) if codes else None
        cosines, sines = guards.place(angles.cos()), guards.place(angles.sin())
        query = kernels.rotate_and_write(
            guards.place(fused), (cosines, sines), norms, *caches, guards.place(slots), scales
        )
        results.append((query, caches, scales))
    guards.check()
    (query, found, found_scales), (wanted_query, wanted, wanted_scales) = results
    error = _difference(query, wanted_query)
    if found_scales is None or wanted_scales is None:
        return max(error, *(_difference(one, other) for one, other in zip(found, wanted, strict=True)))
    # The last place of the largest FP8 code, 448 of 1.75 * 2**8 with three bits behind the point, is 32.
    last_place = 1.0 if codes == "int8" else 32.0
    for one, other, scale, wanted_scale in zip(
        found,
        wanted,
        (found_scales.key, found_scales.value),
        (wanted_scales.key, wanted_scales.value),
        strict=True,
    ):
        error = max(error, _difference(scale, wanted_scale))
        apart = (one.to(torch.float32) - other.to(torch.float32)).abs()
        few = float((apart > 0).to(torch.float32).mean()) <= 0.01
        if codes != "int8" and device == "cpu":
            # Triton's interpreter rounds to FP8 wrongly, to half of the number where it should go up a power of two.
            few, last_place = True, 0.51 * float(other.to(torch.float32).abs().max())
        if float(apart.max()) > last_place or not few:
            return float("inf")
    return error


def silu_and_mul_error(name: str, shape: tuple[int, int], dtype: str, device: str = "cpu") -> float:
    """Of activations up to 4 in size."""
    guards = Guards()
    x = _random(shape, dtype, device)
    wanted = REFERENCE.silu_and_mul(x)
    placed = guards.place(x)
    with guards.around_allocations():
        found = kernel_set(name, device).silu_and_mul(placed)
    guards.check()
    return _difference(found, wanted)


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


@dataclass(frozen=True)
class Product:
    """Rows times a quantized matrix of `outputs` rows and `columns` columns in groups."""

    rows: int
    outputs: int
    columns: int
    group: int
    bits: int
    biased: bool = False


PRODUCTS = {
    "one row, Q4_1's groups": Product(1, 70, 256, 32, 4),
    "rows of two tiles, split columns, a bias": Product(19, 33, 512, 64, 4, biased=True),
    "eight bits, Q8_0's groups": Product(3, 130, 128, 32, 8, biased=True),
    "eight bits, groups of 16 as in Q6_K": Product(2, 20, 64, 16, 8),
    "one group a row": Product(5, 40, 192, 192, 8),
    "groups too small for a tile of four bits": Product(2, 20, 64, 16, 4),
}


def linear_error(name: str, product: Product, dtype: str, device: str = "cpu") -> float:
    """Relative to the largest result, of a product in float32 with the matrix dequantized."""
    made = torch.Generator().manual_seed(product.columns)
    groups = product.columns // product.group
    guards = Guards()

    def place(tensor: torch.Tensor) -> torch.Tensor:
        return guards.place(tensor.to(device))

    matrix = GroupedMatrix(
        place(torch.randint(2**product.bits, (product.outputs, product.columns), generator=made).to(torch.uint8)),
        place(torch.rand((product.outputs, groups), generator=made) / 2**product.bits),
        place(torch.randn((product.outputs, groups), generator=made) / 4),
        product.bits,
    )
    kind = getattr(torch, dtype)
    x = place(torch.randn((product.rows, product.columns), generator=made).to(kind))
    bias = place(torch.randn(product.outputs, generator=made).to(kind)) if product.biased else None
    wide = None if bias is None else bias.to(torch.float32)
    wanted = REFERENCE.linear(matrix, wide)(x.to(torch.float32))
    with guards.around_allocations():
        found = kernel_set(name, device).linear(matrix, bias)(x)
    guards.check()
    return _difference(found, wanted) / float(wanted.abs().max())
