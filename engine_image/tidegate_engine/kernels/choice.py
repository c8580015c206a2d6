"""Which kernels a device gets."""

from __future__ import annotations

from tidegate_engine.kernels.interface import Kernels


def choose(device: str) -> Kernels:
    """The fastest set for "cpu" or "cuda:n"."""
    # Imported only where they are used: Triton alone takes a second that a CPU's start does not have.
    if device.startswith("cuda"):
        from tidegate_engine.kernels.triton_kernels import triton_kernels

        return triton_kernels(device)
    from tidegate_engine.kernels.cpu import cpu_kernels

    return cpu_kernels()
