"""Triton's kernels compiled to machine code of a GPU that is not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import kernel_cases
import sampling_cases
import torch
from kernel_cases import HEADS, Heads, Product, Step

SHARED_MEMORY = 232448
"""Bytes that a program may have on Hopper."""
_QWEN3 = Heads(16, 8, 128, (7, 3))
_SMOLLM2 = HEADS["SmolLM2, scattered"]
_GEMMA2 = Step((100, 1), (100, 300), 8, 4, 256, 16, window=64, softcap=50.0)
_ATTENTION = {
    "Qwen3: a prompt beside decoding": Step((100, 1), (100, 300), 16, 8, 128, 16),
    "heads of 80": Step((20, 1), (20, 300), 2, 1, 80, 16),
}


class AbsentGPU:
    """Stands where Triton asks the driver which GPU there is."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        """The GPU that is meant."""
        return self._target

    def get_current_device(self) -> int:
        """Its number."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Nothing runs on it."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Where tensors are that only lend their types."""
        return torch.device("cpu")


def compile_only(cache: Path, capability: int = 90) -> dict[str, int]:
    """From here on launches in this process compile and do not run; gives the shared memory of each kernel so far."""
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is not set
    if "triton" in sys.modules:
        raise RuntimeError("Triton has been imported already: it would not look at its settings any more")
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(AbsentGPU(capability))  # type: ignore[no-untyped-call]
    compile_and_run = JITFunction.run
    found: dict[str, int] = {}

    def compile_kernel(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = compile_and_run(self, *args, grid=grid, warmup=True, **options)
        if "cubin" not in kernel.asm:
            raise RuntimeError(f"{self.fn.__name__} became no machine code")
        found[self.fn.__name__] = max(found.get(self.fn.__name__, 0), kernel.metadata.shared)
        return kernel

    JITFunction.run = compile_kernel
    return found


def shared_memory(cache: Path) -> dict[str, int]:
    """By kernel the most shared memory; for a process of its own, where nothing of Triton is imported yet."""
    dtype = "bfloat16"
    found = compile_only(cache)
    for step in _ATTENTION.values():
        kernel_cases.attention_error("triton", step, dtype)
    for kind in (None, "int8", "float8_e4m3fn"):
        kernel_cases.attention_error("triton", _GEMMA2, dtype, codes=kind)
        kernel_cases.rotate_and_write_error("triton", _QWEN3, dtype, True, codes=kind)
    kernel_cases.rotate_and_write_error("triton", _SMOLLM2, dtype)
    for product in (Product(1, 300, 1024, 32, 4), Product(100, 300, 1024, 128, 4), Product(20, 300, 1024, 32, 8)):
        kernel_cases.linear_error("triton", product, dtype)
    sampling_cases.differing_tokens(151936, 3)
    kernel_cases.rms_norm_error("triton", (3, 1024), dtype)
    kernel_cases.add_rms_norm_error("triton", (3, 1024), dtype)
    kernel_cases.silu_and_mul_error("triton", (3, 6144), dtype)
    return found
