"""The kernels in Triton, for GPUs; under TRITON_INTERPRET=1 they also run, slowly, on a CPU."""

from __future__ import annotations

import torch
import triton

from tidegate_engine.kernels import triton_fused, triton_grouped, triton_rows
from tidegate_engine.kernels.interface import Kernels
from tidegate_engine.kernels.triton_attention import TritonAttention
from tidegate_engine.kernels.triton_tiles import AttentionTiles


def triton_kernels(device: str, tiles: AttentionTiles | None = None) -> Kernels:
    """The set for a device such as "cuda:0"; `tiles` are those of attention, where a search has found any."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{device}, interpreted"
    return Kernels(
        f"Triton {triton.__version__} on {name}",
        triton_rows.rms_norm,
        triton_rows.add_rms_norm,
        triton_rows.rotate,
        triton_rows.write_kv,
        TritonAttention(tiles).plan,
        triton_grouped.linear,
        triton_fused.rotate_and_write,
        triton_fused.silu_and_mul,
    )
