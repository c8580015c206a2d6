"""The kernels in Triton, for GPUs; under TRITON_INTERPRET=1 they also run, slowly, on a CPU."""

from __future__ import annotations

import torch
import triton

from tidegate_engine.kernels import reference, triton_attention, triton_rows
from tidegate_engine.kernels.interface import Kernels


def triton_kernels(device: str) -> Kernels:
    """The set for a device such as "cuda:0"."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{device}, interpreted"
    return Kernels(
        f"Triton {triton.__version__} on {name}",
        triton_rows.rms_norm,
        triton_rows.add_rms_norm,
        triton_rows.rotate,
        triton_rows.write_kv,
        triton_attention.plan_attention,
        reference.linear,
    )
