"""The kernels on an x86-64 processor, compiled: quantized weights stay so, keys and values are kept in float16.

Every sum is made in one order whatever else is in the batch, and both instruction sets give the same bits.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tidegate_engine.kernels import cpu, reference
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
from tidegate_engine.kernels.native_library import Heads, Isa, available, open_library
from tidegate_engine.kernels.native_library import Paging as NativePaging

BLOCK_SIZE = 16
"""Tokens of a block, which the library has built in."""
_WIDEST_HEAD = 256
_MOST_THREADS = 256
"""Of a team; team.h has a place for each."""
WIDEST_HIDDEN = 16384
"""Of a network that the library takes whole; forward.cpp keeps a row of it on the stack."""


KV_DTYPE = torch.float16
"""What a cache holds that the library reads."""


class OutOfMemory(MemoryError):
    """The library could not get memory for a call's intermediate results."""


class Team:
    """The library and its threads. Calls are made by one thread at a time."""

    def __init__(self, library: ctypes.CDLL, threads: int, isa: Isa) -> None:
        self.library = library
        self.pointer = library.tg_team_new(threads, isa)
        if not self.pointer:
            raise OutOfMemory(f"a team of {threads} threads cannot be made")
        self.threads, self.isa = threads, isa
        weakref.finalize(self, library.tg_team_free, self.pointer)

    def use(self, isa: Isa) -> None:
        """Kernels of another instruction set from the next call on."""
        self.library.tg_team_set_isa(self.pointer, isa)
        self.isa = isa

    def checked(self, result: int) -> None:
        """Raise OutOfMemory for a call that could not be made."""
        if result:
            raise OutOfMemory("no memory is left for the intermediate results of a step")


class PackedMatrix:
    """A quantized matrix as the library keeps it. Raises ValueError for shapes it has no kernels for."""

    def __init__(self, team: Team, matrix: GroupedMatrix) -> None:
        codes = matrix.codes.contiguous()
        scales, offsets = matrix.scales.contiguous(), matrix.offsets.contiguous()
        self.team, self.shape = team, matrix.shape
        self.pointer = team.library.tg_matrix_new(
            team.pointer,
            codes.data_ptr(),
            scales.data_ptr(),
            offsets.data_ptr(),
            *matrix.shape,
            matrix.group_size,
            matrix.bits,
        )
        if not self.pointer:
            raise ValueError(f"no kernel for {matrix.bits} bits in groups of {matrix.group_size} of {matrix.shape}")
        weakref.finalize(self, team.library.tg_matrix_free, self.pointer)
        # What an error in a group of 32 inputs weighs: float32 [K / 32].
        per_group = max(1, matrix.group_size // 32)
        squares = scales.square().sum(0).repeat_interleave(per_group)
        self.weights = squares if matrix.group_size >= 32 else squares.view(-1, 2).sum(1)

    def widen(self, groups: Tensor) -> None:
        """Read the activations of these groups of 32 inputs (bool [K / 32]) in 16 bits from now on."""
        flags = groups.to(torch.uint8).contiguous()
        self.team.library.tg_matrix_widen(self.pointer, flags.data_ptr())

    @property
    def num_bytes(self) -> int:
        """Memory that a pass over it reads."""
        size: int = self.team.library.tg_matrix_bytes(self.pointer)
        return size

    def rows(self, wanted: Tensor) -> Tensor:
        """Rows by number (int64 [n]), float32 [n, K]."""
        wanted = wanted.contiguous()
        out = torch.empty(len(wanted), self.shape[1])
        library = self.team.library
        library.tg_matrix_rows(self.team.pointer, self.pointer, wanted.data_ptr(), len(wanted), out.data_ptr())
        return out


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """x W^T + b over a packed matrix; activations are rounded to 8 bits in groups of 32, to 16 where it is widened."""

    matrix: PackedMatrix
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(torch.float32).contiguous()
        out = torch.empty(len(rows), self.matrix.shape[0])
        team = self.matrix.team
        bias = None if self.bias is None else self.bias.data_ptr()
        team.checked(
            team.library.tg_linear(team.pointer, self.matrix.pointer, bias, rows.data_ptr(), len(rows), out.data_ptr())
        )
        return out.view(*x.shape[:-1], self.matrix.shape[0])


_GGML_NUMBERS = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 8}


def open_blocks(kind: str, blocks: Tensor) -> GroupedMatrix | None:
    """GGUF's blocks of whole rows (uint8 [N, n, bytes of a block]) taken apart; None where torch has to do it."""
    library = open_library()
    if library is None or kind not in _GGML_NUMBERS or not available():
        return None
    rows, count, _ = blocks.shape
    blocks = blocks.contiguous()
    codes = torch.empty(rows, count * 32, dtype=torch.uint8)
    scales, offsets = torch.empty(2, rows, count)
    library.tg_open_blocks(
        _GGML_NUMBERS[kind],
        blocks.data_ptr(),
        rows * count,
        codes.data_ptr(),
        scales.data_ptr(),
        offsets.data_ptr(),
    )
    return GroupedMatrix(codes, scales, offsets, 8 if kind == "Q8_0" else 4)


def fits(matrix: GroupedMatrix) -> bool:
    """Whether the library has a kernel for such a matrix."""
    group = matrix.group_size
    return matrix.shape[1] % 32 == 0 and (group == 16 or group % 32 == 0)


def native_linear(team: Team) -> Callable[[Matrix, Tensor | None], Linear]:
    """See Kernels.linear: quantized matrices are packed, others left to torch."""

    def linear(weight: Matrix, bias: Tensor | None) -> Linear:
        if isinstance(weight, GroupedMatrix) and fits(weight):
            return PackedLinear(PackedMatrix(team, weight), None if bias is None else bias.to(torch.float32))
        return reference.linear(weight, bias)

    return linear


def native_paging(paging: Paging) -> NativePaging:
    """The library's view of the same tensors, which have to outlive it."""
    return NativePaging(
        paging.query_start.data_ptr(),
        paging.context_lens.data_ptr(),
        paging.block_tables.data_ptr(),
        len(paging.context_lens),
        paging.block_tables.stride(0),
    )


def readable(cache: Tensor) -> bool:
    """Whether a cache [blocks, Hk, block size, D] is of the one kind that the library knows."""
    _, _, block_size, width = cache.shape
    return cache.dtype == KV_DTYPE and block_size == BLOCK_SIZE and width % 16 == 0 and width <= _WIDEST_HEAD


@dataclass(frozen=True, slots=True)
class _CacheKernels:
    """What touches the cache. Only float16 is the library's; keys lie there in its own order: see tg_attention."""

    team: Team

    def write_kv(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slots: Tensor,
        scales: KVScales | None = None,
    ) -> None:
        if not readable(key_cache):
            return reference.write_kv(key, value, key_cache, value_cache, slots, scales)
        key, value = (x.to(torch.float32) if x.stride(1) == x.shape[2] else x.contiguous() for x in (key, value))
        self.team.library.tg_write_kv(
            self.team.pointer,
            Heads(key.shape[1], key.shape[1], key.shape[2], 1.0, 0.0, 0),
            key.data_ptr(),
            value.data_ptr(),
            key.stride(0),
            value.stride(0),
            slots.data_ptr(),
            len(slots),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
        )
        return None

    def rotate_and_write(
        self,
        qkv: Tensor,
        angles: tuple[Tensor, Tensor],
        norms: HeadNorms | None,
        key_cache: Tensor,
        value_cache: Tensor,
        slots: Tensor,
        scales: KVScales | None = None,
    ) -> Tensor:
        query, key, value = cpu.split_and_rotate(qkv, angles, norms, key_cache.shape[1])
        self.write_kv(key, value, key_cache, value_cache, slots, scales)
        return query

    def plan_attention(self, paging: Paging, spec: AttentionSpec) -> Attention:
        view, team = native_paging(paging), self.team
        others: list[Attention] = []

        def attend(query: Tensor, key_cache: Tensor, value_cache: Tensor, scales: KVScales | None = None) -> Tensor:
            if not readable(key_cache):
                if not others:
                    others.append(cpu.plan_attention(paging, spec))
                return others[0](query, key_cache, value_cache, scales)
            heads = Heads(query.shape[1], key_cache.shape[1], query.shape[2], *native_spec(spec))
            query = query if query.stride(1) == query.shape[2] else query.contiguous()
            out = torch.empty(query.shape)
            team.checked(
                team.library.tg_attention(
                    team.pointer,
                    heads,
                    view,
                    query.data_ptr(),
                    query.stride(0),
                    key_cache.data_ptr(),
                    value_cache.data_ptr(),
                    out.data_ptr(),
                )
            )
            return out

        return attend


def native_spec(spec: AttentionSpec) -> tuple[float, float, int]:
    """Scale, softcap and window as tg_heads has them, 0 for what there is not."""
    return spec.scale, spec.softcap or 0.0, spec.window or 0


def native_team(threads: int) -> Team | None:
    """The library with threads of its own, or None where there is none or AVX2 is not to be used."""
    library, found = open_library(), available()
    return None if library is None or not found else Team(library, min(threads, _MOST_THREADS), found[-1])


def native_kernels(team: Team, description: str) -> Kernels:
    """The compiled set. Activations are float32; caches it does not read are left to torch."""
    caches = _CacheKernels(team)
    return Kernels(
        description,
        cpu.rms_norm,
        cpu.add_rms_norm,
        cpu.rotate,
        caches.write_kv,
        caches.plan_attention,
        native_linear(team),
        caches.rotate_and_write,
        cpu.silu_and_mul,
        KV_DTYPE,
    )
