"""Which kernels a device gets."""

from __future__ import annotations

import torch

from tidegate_engine.kernels.interface import Kernels


def choose(device: str, compiled: bool) -> Kernels:
    """The fastest set for "cpu" or "cuda:n"; `compiled`: whether rounding activations to 8 bits is welcome on a CPU."""
    # Imported only where they are used: Triton alone takes a second that a CPU's start does not have.
    if device.startswith("cuda"):
        from tidegate_engine.kernels.triton_kernels import triton_kernels

        return triton_kernels(device)
    if compiled:
        from tidegate_engine.kernels.native import native_kernels, native_team
        from tidegate_engine.kernels.native_speed import choose_fastest

        team = native_team(torch.get_num_threads())
        if team is not None:
            measured = choose_fastest(team)
            return native_kernels(team, f"compiled for {team.isa.name} ({measured})")
    from tidegate_engine.kernels.cpu import cpu_kernels

    return cpu_kernels()
