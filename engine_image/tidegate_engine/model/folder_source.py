"""Weights of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from tidegate_engine.files import ModelFileError
from tidegate_engine.kernels.grouped import GroupedMatrix


class FolderSource:
    """A Hugging Face folder: one *.safetensors, or several under model.safetensors.index.json."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._files: dict[str, Any] = {}
        for path in self._shards():
            try:
                opened = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path}: is corrupt or truncated ({error}); download the file again") from None
            names: list[str] = opened.offset_keys()  # type: ignore[no-untyped-call]
            self._files |= dict.fromkeys(names, opened)

    def names(self) -> Iterable[str]:
        """See Source."""
        return self._files

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source."""
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        """See Source."""
        found = self._files[name].get_slice(name)[rows]
        if not found.dtype.is_floating_point or found.dtype.itemsize < 2:
            raise ModelFileError(
                f"{self.path}: tensor {name!r} is stored as {found.dtype}, which is not supported; "
                "use weights in float32, float16 or bfloat16"
            )
        out.copy_(found)

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        return None

    def _shards(self) -> list[Path]:
        index = self.path / "model.safetensors.index.json"
        if not index.exists():
            found = sorted(self.path.glob("*.safetensors"))
            if not found:
                raise ModelFileError(f"{self.path}: holds no *.safetensors; download the model's weights too")
            return found
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFileError(f"{index}: cannot be read ({error!r}); download the file again") from None
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise ModelFileError(f"{self.path}: lacks {missing[0]}, which its index names; download it too")
        return [self.path / name for name in names]
