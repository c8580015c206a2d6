"""Where weights come from, as the network sees it: tensors under the names that Hugging Face's Llama has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix


class Source(Protocol):
    """Tensors by name."""

    path: Path

    def names(self) -> Iterable[str]:
        """All of them."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one that exists."""
        ...

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        """Write rows of one that exists over `out`, converting to its type."""
        ...

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """Rows of a matrix as they are stored, where they are stored in groups that share a scale; else None."""
        ...
