"""Buffers between zones that nothing may read or write: Triton's interpreter does not notice what leaves a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

_ZONE = 512
"""Elements before and after each buffer: more than the widest row here, and a multiple of any alignment."""


class Guards:
    """Floating-point zones are NaN, which no sum hides; whole numbers in them are places far outside any tensor."""

    def __init__(self) -> None:
        self._zones: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._allocate = torch.empty

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy with a zone on either side."""
        placed = self.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        placed.copy_(tensor)
        return placed

    def empty(self, *shape: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        """As torch.empty; what is never written to stays NaN, or far outside."""
        sizes = torch.Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        whole = self._allocate(sizes.numel() + 2 * _ZONE, dtype=dtype, device=device)
        if dtype.is_floating_point:
            whole.copy_(torch.full(whole.shape, float("nan"), device=device))
        else:
            whole.fill_(min(torch.iinfo(dtype).max, 2**30))
        self._zones.append((whole, whole.clone()))
        return whole[_ZONE:-_ZONE].view(sizes)

    @contextmanager
    def around_allocations(self) -> Iterator[None]:
        """Kernels that allocate their results get guarded buffers too."""
        with mock.patch.object(torch, "empty", self.empty):
            yield

    def check(self) -> None:
        """Raise AssertionError where a zone was written to."""
        for whole, before in self._zones:
            for zone in (slice(None, _ZONE), slice(-_ZONE, None)):
                same = torch.equal(whole[zone].view(torch.uint8), before[zone].view(torch.uint8))
                assert same, f"a kernel wrote outside a tensor of {len(whole) - 2 * _ZONE} elements of {whole.dtype}"
