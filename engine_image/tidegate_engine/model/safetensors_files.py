"""The tensors of a Hugging Face folder, as they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from tidegate_engine.files import ModelFileError

_ALL = slice(None)


class SafetensorsFiles:
    """One *.safetensors, or several under model.safetensors.index.json; read from disk as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        for path in _shards(folder):
            try:
                opened = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path}: is corrupt or truncated ({error}); download the file again") from None
            names: list[str] = opened.offset_keys()  # type: ignore[no-untyped-call]
            self._files |= dict.fromkeys(names, opened)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one that exists."""
        return tuple(self._files[name].get_slice(name).get_shape())

    def tensor(self, name: str, rows: slice = _ALL, columns: slice | None = None) -> Tensor:
        """A part of one that exists; `columns` of a matrix only."""
        if not self.shape(name):
            whole: Tensor = self._files[name].get_tensor(name)
            return whole
        part = self._files[name].get_slice(name)
        found: Tensor = part[rows] if columns is None else part[rows, columns]
        return found


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        found = sorted(folder.glob("*.safetensors"))
        if not found:
            raise ModelFileError(f"{folder}: holds no *.safetensors; download the model's weights too")
        return found
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{index}: cannot be read ({error!r}); download the file again") from None
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelFileError(f"{folder}: lacks {missing[0]}, which its index names; download it too")
    return [folder / name for name in names]
