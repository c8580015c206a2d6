"""What every set of kernels offers. Legend of shapes: T tokens, R requests, Hq query heads, Hk key/value heads, D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix

Matrix = Tensor | GroupedMatrix
"""A weight as it is kept: plain, or quantized in groups."""


@dataclass(frozen=True, slots=True)
class Paging:
    """Which tokens belong to which request, and in which blocks of the cache its keys and values lie.

    Request r owns rows `query_start[r]:query_start[r + 1]`, the last ones of its `context_lens[r]` tokens.
    """

    query_start: Tensor
    """int32 [R + 1]"""
    context_lens: Tensor
    """int32 [R], this step's tokens included"""
    block_tables: Tensor
    """int32 [R, max blocks], padded with any valid block"""
    max_query_len: int
    max_context_len: int
    block_size: int


@dataclass(frozen=True, slots=True)
class KVScales:
    """What the codes of one layer's cache in int8 or float8 are multiplied by, one number for each token and head."""

    key: Tensor
    """float32 [blocks, Hk, block size]"""
    value: Tensor
    """float32 [blocks, Hk, block size]"""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What a layer's attention computes: layers that share it share a plan."""

    scale: float
    """of the scores"""
    window: int | None = None
    """how many keys a query sees, itself the last of them; None: all before it"""
    softcap: float | None = None
    """where given, a score s becomes softcap * tanh(s / softcap) before the softmax (Gemma 2)"""


class Attention(Protocol):
    """Causal attention of one step, the same for every layer: what can be prepared once has been."""

    def __call__(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, scales: KVScales | None = None) -> Tensor:
        """Query [T, Hq, D], caches [blocks, Hk, block size, D] to [T, Hq, D]; this step's tokens are cached before.

        Caches of codes (int8, float8_e4m3fn) come with their scales.
        """
        ...


class WriteKV(Protocol):
    """Writes a step's keys and values into the cache of one layer."""

    def __call__(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slots: Tensor,
        scales: KVScales | None = None,
    ) -> None:
        """Key and value [T, Hk, D] to slots int64 [T]: slot = block * block size + offset; codes with their scales."""
        ...


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Weights [D] of the norm of each query head and each key head, before they are rotated."""

    query: Tensor
    key: Tensor
    epsilon: float


class RotateAndWrite(Protocol):
    """What lies between the projection to queries, keys and values, and attention: a pass over each token's heads."""

    def __call__(
        self,
        qkv: Tensor,
        angles: tuple[Tensor, Tensor],
        norms: HeadNorms | None,
        key_cache: Tensor,
        value_cache: Tensor,
        slots: Tensor,
        scales: KVScales | None = None,
    ) -> Tensor:
        """The queries of `qkv` [T, Hq + 2 Hk, D], normalised and rotated by `angles` (cosines, sines), a view of it.

        Keys, treated alike, and values go to their slots in the caches; what `qkv` holds of them then is undefined.
        """
        ...


class Linear(Protocol):
    """x W^T + b, its weight arranged as this set of kernels wants it."""

    def __call__(self, x: Tensor) -> Tensor:
        """[..., K] to [..., N]; a row's result does not depend on the other rows."""
        ...


@dataclass(frozen=True, slots=True)
class Kernels:
    """One implementation of each kernel; all sets compute the same."""

    description: str
    """one line for the log: what was chosen and why"""
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    """(x [..., H], weight [H], epsilon) -> x over its root mean square, times weight; computed in float32"""
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    """(x, residual, weight, epsilon) -> (rms_norm of the sum, the sum); `residual` may be overwritten"""
    rotate: Callable[[Tensor, Tensor, Tensor], None]
    """(x [T, heads, D], cos [T, D/2], sin [T, D/2]): rotary embedding in place, halves paired as in GPT-NeoX"""
    write_kv: WriteKV
    plan_attention: Callable[[Paging, AttentionSpec], Attention]
    """(paging, what is computed) -> attention for every such layer of this step"""
    linear: Callable[[Matrix, Tensor | None], Linear]
    """(weight [N, K], bias [N] or None) -> the layer; called once at load, and may keep another arrangement of it"""
    rotate_and_write: RotateAndWrite
    silu_and_mul: Callable[[Tensor], Tensor]
    """(gate and up side by side [T, 2 I]) -> silu(gate) * up [T, I]"""
    kv_dtype: torch.dtype | None = None
    """what the cache should hold where nothing else is asked for; None: numbers of the activations' type"""
