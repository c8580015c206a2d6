"""The kernels on a CPU: what plain torch does fastest there.

Attention copies each request's blocks into one piece (`embedding` is an `index_select` that takes indices of any
shape) and gives it to torch's own flash attention. Requests that decode go together in groups of similar length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tidegate_engine.kernels import reference
from tidegate_engine.kernels.interface import Attention, AttentionSpec, HeadNorms, Kernels, KVScales, Paging
from tidegate_engine.kernels.kv_codes import decode


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """See Kernels.rms_norm."""
    if weight.dtype != x.dtype:  # Gemma's weights, near one, are kept wide; torch has no fast path for that
        return reference.rms_norm(x, weight, epsilon)
    return F.rms_norm(x, (x.shape[-1],), weight, epsilon)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """See Kernels.add_rms_norm."""
    residual += x
    return rms_norm(residual, weight, epsilon), residual


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """See Kernels.rotate."""
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)
    x.mul_(torch.cat((cos, cos), dim=-1).unsqueeze(1).to(x.dtype))
    x.addcmul_(swapped, torch.cat((-sin, sin), dim=-1).unsqueeze(1).to(x.dtype))


@dataclass(frozen=True, slots=True)
class _Group:
    """Requests that are computed together: one with several new tokens, or several with one each."""

    tokens: Tensor | slice
    """their rows of the query"""
    blocks: Tensor
    """int64 [r, n], their blocks, of which those before every window are left out"""
    mask: Tensor | None
    """bool [r, 1, queries, n * block size] true where a query sees a key; None where each sees all"""
    new_tokens: int


def plan_attention(paging: Paging, spec: AttentionSpec) -> Attention:
    """See Kernels.plan_attention."""
    groups = [*_decoding(paging, spec.window), *_prefilling(paging, spec.window)]
    rows: list[Tensor] = []

    def attend(query: Tensor, key_cache: Tensor, value_cache: Tensor, scales: KVScales | None = None) -> Tensor:
        kv_heads = key_cache.shape[1]
        if not rows:
            # Row block * kv_heads + head of the cache seen as [blocks * kv_heads, block size * D].
            head = torch.arange(kv_heads).view(-1, 1)
            rows.extend(group.blocks.unsqueeze(1) * kv_heads + head for group in groups)
        out = torch.empty_like(query) if len(groups) > 1 else query
        for group, places in zip(groups, rows, strict=True):
            key = _gathered(key_cache, scales.key if scales else None, places, query.dtype)
            value = _gathered(value_cache, scales.value if scales else None, places, query.dtype)
            found = _attend_group(group, query[group.tokens], key, value, spec)
            if len(groups) == 1:
                return found
            out[group.tokens] = found
        return out

    return attend


def _gathered(cache: Tensor, scales: Tensor | None, places: Tensor, dtype: torch.dtype) -> Tensor:
    """The blocks at `places` [r, Hk, n] in one piece, as numbers [r, Hk, n * block size, D]."""
    requests, kv_heads, blocks = places.shape
    _, _, block_size, width = cache.shape
    shape = (requests, kv_heads, blocks * block_size, width)
    if scales is None:
        return F.embedding(places, cache.view(-1, block_size * width)).view(shape).to(dtype)
    # As bytes: torch on a CPU does not gather float8.
    codes = F.embedding(places, cache.view(torch.uint8).view(-1, block_size * width)).view(cache.dtype).view(shape)
    return decode(codes, F.embedding(places, scales.view(-1, block_size)).view(shape[:-1]), dtype)


def _attend_group(group: _Group, query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    heads, width = query.shape[1:]
    requests, kv_heads = key.shape[:2]
    if group.new_tokens == 1:
        # The query heads that share a key head stand where a prompt's tokens would: nothing has to be repeated.
        query = query.view(requests, kv_heads, heads // kv_heads, width)
        return _attend(query, key, value, group.mask, spec).reshape(requests, heads, width)
    found = _attend(query.transpose(0, 1).unsqueeze(0), key, value, group.mask, spec)
    return found.squeeze(0).transpose(0, 1)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, spec: AttentionSpec) -> Tensor:
    """Query [r, heads, n, D], key and value [r, Hk, length, D] to [r, heads, n, D]."""
    grouped = query.shape[1] != key.shape[1]
    if spec.softcap is None:
        return F.scaled_dot_product_attention(query, key, value, mask, scale=spec.scale, enable_gqa=grouped)
    # Torch's own attention caps nothing.
    requests, heads, new, width = query.shape
    query = query.reshape(requests, key.shape[1], -1, width)
    scores = (query @ key.transpose(2, 3)).to(torch.float32).mul_(spec.scale / spec.softcap).tanh_().mul_(spec.softcap)
    if mask is not None:
        scores = scores.view(requests, heads, new, -1).masked_fill_(~mask, float("-inf")).view(scores.shape)
    return (scores.softmax(dim=-1).to(value.dtype) @ value).view(requests, heads, new, width)


def _decoding(paging: Paging, window: int | None) -> list[_Group]:
    starts, lengths = paging.query_start.tolist(), paging.context_lens.tolist()
    by_size: dict[int, list[int]] = {}
    first_seen = [0 if window is None else max(0, length - window) for length in lengths]
    for request, length in enumerate(lengths):
        if starts[request + 1] - starts[request] == 1:
            blocks = -(-length // paging.block_size) - first_seen[request] // paging.block_size
            by_size.setdefault(blocks.bit_length(), []).append(request)  # so at most half of a group is padding
    groups: list[_Group] = []
    for requests in by_size.values():
        first = torch.tensor([first_seen[request] // paging.block_size for request in requests])
        last = torch.tensor([(lengths[request] - 1) // paging.block_size for request in requests])
        chosen = torch.tensor(requests)
        at = first.unsqueeze(1) + torch.arange(int((last - first).max()) + 1)
        position = (at.unsqueeze(2) * paging.block_size + torch.arange(paging.block_size)).flatten(1)
        mask = position < paging.context_lens[chosen].unsqueeze(1)
        if window is not None:
            mask &= position >= torch.tensor([first_seen[request] for request in requests]).unsqueeze(1)
        tables = paging.block_tables[chosen].to(torch.int64)
        groups.append(
            _Group(
                tokens=paging.query_start[chosen].to(torch.int64),
                blocks=tables.gather(1, at.clamp_(max=tables.shape[1] - 1)),
                mask=None if bool(mask.all()) else mask.view(len(requests), 1, 1, -1),
                new_tokens=1,
            )
        )
    return groups


def _prefilling(paging: Paging, window: int | None) -> list[_Group]:
    starts = paging.query_start.tolist()
    groups: list[_Group] = []
    for request, length in enumerate(paging.context_lens.tolist()):
        new = starts[request + 1] - starts[request]
        if new > 1:
            first = 0 if window is None else max(0, length - new + 1 - window) // paging.block_size
            blocks = -(-length // paging.block_size)
            position = torch.arange(length - new, length).unsqueeze(1)
            key = torch.arange(first * paging.block_size, blocks * paging.block_size)
            mask = key <= position
            if window is not None:
                mask &= key > position - window
            groups.append(
                _Group(
                    tokens=slice(starts[request], starts[request + 1]),
                    blocks=paging.block_tables[request, first:blocks].to(torch.int64).unsqueeze(0),
                    mask=mask.view(1, 1, new, -1),
                    new_tokens=new,
                )
            )
    return groups


def split_and_rotate(
    qkv: Tensor, angles: tuple[Tensor, Tensor], norms: HeadNorms | None, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of `qkv` [T, Hq + 2 Hk, D], normalised and rotated in place."""
    queries = qkv.shape[1] - 2 * kv_heads
    query, key, value = torch.split(qkv, [queries, kv_heads, kv_heads], dim=1)
    if norms is not None:
        query.copy_(rms_norm(query, norms.query, norms.epsilon))
        key.copy_(rms_norm(key, norms.key, norms.epsilon))
    rotate(qkv[:, : queries + kv_heads], *angles)
    return query, key, value


def rotate_and_write(
    qkv: Tensor,
    angles: tuple[Tensor, Tensor],
    norms: HeadNorms | None,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    scales: KVScales | None = None,
) -> Tensor:
    """See RotateAndWrite."""
    query, key, value = split_and_rotate(qkv, angles, norms, key_cache.shape[1])
    reference.write_kv(key, value, key_cache, value_cache, slots, scales)
    return query


def silu_and_mul(x: Tensor) -> Tensor:
    """See Kernels.silu_and_mul."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def cpu_kernels() -> Kernels:
    """The set for this machine."""
    description = f"torch on CPU ({torch.backends.cpu.get_cpu_capability()}), flash attention over gathered blocks"
    return Kernels(
        description,
        rms_norm,
        add_rms_norm,
        rotate,
        reference.write_kv,
        plan_attention,
        reference.linear,
        rotate_and_write,
        silu_and_mul,
    )
