"""The compiled operator library for x86-64 as ctypes sees it; engine_image/native/tidegate_cpu.h is its other side."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p
from enum import IntEnum
from functools import cache
from pathlib import Path

import torch

LIBRARY = Path(__file__).with_name("libtidegate_cpu.so")


class Isa(IntEnum):
    """Instruction sets there are kernels for, from the least to the most wanted."""

    AVX2 = 0
    AVX512_VNNI = 1


class Paging(Structure):
    """tg_paging."""

    _fields_ = [
        ("query_start", c_void_p),
        ("context_lens", c_void_p),
        ("block_tables", c_void_p),
        ("requests", c_int64),
        ("table_stride", c_int64),
    ]


class Heads(Structure):
    """tg_heads."""

    _fields_ = [
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("width", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("window", c_int64),
    ]


class Layer(Structure):
    """tg_layer."""

    _fields_ = [
        (name, c_void_p)
        for name in (
            *("attention_norm", "mlp_norm", "query_norm", "key_norm"),
            *("qkv", "output", "gate_up", "down"),
            *("qkv_bias", "output_bias", "gate_up_bias", "down_bias"),
            *("keys", "values"),
        )
    ]


class Model(Structure):
    """tg_model."""

    _fields_ = [
        ("layers", POINTER(Layer)),
        ("num_layers", c_int64),
        ("hidden", c_int64),
        ("intermediate", c_int64),
        ("epsilon", c_float),
        ("heads", Heads),
        ("embedding", c_void_p),
        ("norm", c_void_p),
    ]


class Step(Structure):
    """tg_step."""

    _fields_ = [
        ("paging", Paging),
        ("tokens", c_int64),
        ("wanted", c_int64),
        ("token_ids", c_void_p),
        ("slots", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("rows", c_void_p),
    ]


@cache
def open_library(path: Path = LIBRARY) -> ctypes.CDLL | None:
    """The library with its functions' types; None where it was not built, or is for another kind of processor."""
    if not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    pointer, whole, real = c_void_p, c_int64, c_void_p
    for name, result, arguments in (
        ("best_isa", c_int, []),
        ("team_new", pointer, [c_int, c_int]),
        ("team_free", None, [pointer]),
        ("team_set_isa", None, [pointer, c_int]),
        ("matrix_new", pointer, [pointer, pointer, real, real, whole, whole, whole, c_int]),
        ("open_blocks", c_int, [c_int, pointer, whole, pointer, real, real]),
        ("matrix_free", None, [pointer]),
        ("matrix_widen", None, [pointer, pointer]),
        ("matrix_bytes", whole, [pointer]),
        ("matrix_rows", None, [pointer, pointer, pointer, whole, real]),
        ("linear", c_int, [pointer, pointer, real, real, whole, real]),
        ("attention", c_int, [pointer, POINTER(Heads), POINTER(Paging), real, whole, pointer, pointer, real]),
        ("write_kv", None, [pointer, POINTER(Heads), real, real, whole, whole, pointer, whole, pointer, pointer]),
        ("hidden", c_int, [pointer, POINTER(Model), POINTER(Step), real]),
    ):
        function = getattr(library, f"tg_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def available() -> list[Isa]:
    """The instruction sets this process may use: those of the processor, and no more than torch itself uses here.

    torch's own ATEN_CPU_CAPABILITY ("default", "avx2") so holds for both, and shows on a large processor what a small
    one would do. Empty where there is no library, or not even AVX2.
    """
    library = open_library()
    if library is None:
        return []
    best: int = library.tg_best_isa()
    allowed = {"DEFAULT": -1, "AVX2": Isa.AVX2}.get(torch.backends.cpu.get_cpu_capability(), max(Isa))
    return [isa for isa in Isa if isa <= min(best, allowed)]
