"""The kernels in plain torch, written to be read: the oracle that every other implementation must equal."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import (
    Attention,
    AttentionSpec,
    HeadNorms,
    Kernels,
    KVScales,
    Linear,
    Matrix,
    Paging,
)
from tidegate_engine.kernels.kv_codes import decode, encode


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """See Kernels.rms_norm."""
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return (wide * scale * weight.to(torch.float32)).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """See Kernels.add_rms_norm."""
    total = x + residual
    return rms_norm(total, weight, epsilon), total


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """See Kernels.rotate."""
    first, second = x.to(torch.float32).chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    x.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))


def write_kv(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, scales: KVScales | None = None
) -> None:
    """See WriteKV."""
    block_size = key_cache.shape[2]
    blocks, offsets = slots // block_size, slots % block_size
    if scales is not None:
        key, scales.key[blocks, :, offsets] = encode(key, key_cache.dtype)
        value, scales.value[blocks, :, offsets] = encode(value, value_cache.dtype)
    for new, cache in ((key, key_cache), (value, value_cache)):
        _movable(cache)[blocks, :, offsets] = _movable(new.to(cache.dtype))


def _movable(x: Tensor) -> Tensor:
    """The bytes of float8, which torch on a CPU does not index."""
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x


def plan_attention(paging: Paging, spec: AttentionSpec) -> Attention:
    """See Kernels.plan_attention."""

    def attend(query: Tensor, key_cache: Tensor, value_cache: Tensor, scales: KVScales | None = None) -> Tensor:
        out = torch.empty_like(query)
        starts = paging.query_start.tolist()
        for request, length in enumerate(paging.context_lens.tolist()):
            rows = slice(starts[request], starts[request + 1])
            blocks = paging.block_tables[request, : -(-length // paging.block_size)].to(torch.int64)
            key = _blocks_of(key_cache, scales.key if scales else None, blocks)[:length]
            value = _blocks_of(value_cache, scales.value if scales else None, blocks)[:length]
            out[rows] = _attend_one(query[rows], key, value, spec)
        return out

    return attend


def _blocks_of(cache: Tensor, scales: Tensor | None, blocks: Tensor) -> Tensor:
    """The tokens of some blocks [tokens, Hk, D], as numbers."""
    found = _movable(cache)[blocks].view(cache.dtype)
    if scales is not None:
        found = decode(found, scales[blocks], torch.float32)
    return found.transpose(1, 2).flatten(0, 1)


def _attend_one(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """Query [n, Hq, D], the last of the context; key and value [context, Hk, D]."""
    count, heads, _ = query.shape
    length, kv_heads, _ = key.shape
    key = key.repeat_interleave(heads // kv_heads, dim=1).to(torch.float32)
    value = value.repeat_interleave(heads // kv_heads, dim=1).to(torch.float32)
    scores = torch.einsum("nhd,lhd->hnl", query.to(torch.float32), key) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    positions = torch.arange(length - count, length, device=query.device).unsqueeze(1)
    at = torch.arange(length, device=query.device)
    unseen = at > positions
    if spec.window is not None:
        unseen |= at <= positions - spec.window
    weights = scores.masked_fill(unseen, float("-inf")).softmax(dim=-1)
    return torch.einsum("hnl,lhd->nhd", weights, value).to(query.dtype)


def linear(weight: Matrix, bias: Tensor | None) -> Linear:
    """See Kernels.linear; quantized weights are dequantized to float32 once, and that is what is computed in."""
    if not isinstance(weight, GroupedMatrix):
        return partial(F.linear, weight=weight, bias=bias)
    wide, wide_bias = weight.dequantized(), None if bias is None else bias.to(torch.float32)
    return lambda x: F.linear(x.to(torch.float32), wide, wide_bias).to(x.dtype)


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
    keys = key_cache.shape[1]
    queries = qkv.shape[1] - 2 * keys
    query, key, value = torch.split(qkv, [queries, keys, keys], dim=1)
    if norms is not None:
        query.copy_(rms_norm(query, norms.query, norms.epsilon))
        key.copy_(rms_norm(key, norms.key, norms.epsilon))
    rotate(qkv[:, : queries + keys], *angles)
    write_kv(key, value, key_cache, value_cache, slots, scales)
    return query


def silu_and_mul(x: Tensor) -> Tensor:
    """See Kernels.silu_and_mul."""
    gate, up = x.to(torch.float32).chunk(2, dim=-1)
    return (F.silu(gate) * up).to(x.dtype)


REFERENCE = Kernels(
    "plain torch", rms_norm, add_rms_norm, rotate, write_kv, plan_attention, linear, rotate_and_write, silu_and_mul
)
