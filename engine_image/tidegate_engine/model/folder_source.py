"""Weights of a Hugging Face folder, plain or quantized."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from tidegate_engine.files import ModelFileError
from tidegate_engine.files.quantization import StoredQuantization, stored_quantization
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.model.safetensors_files import SafetensorsFiles
from tidegate_engine.model.stored import StoredMatrix
from tidegate_engine.model.stored_formats import Format, formats_of

_CACHE_SCALES = (".k_scale", ".v_scale", ".kv_scale", "k_proj.output_scale", "v_proj.output_scale")
"""For a cache in float8 with one scale for all tokens; ours gives each its own."""
_FLOAT8_SCALES = ("weight_scale", "weight_scale_inv")
_FLOAT8_COMPANIONS = (*_FLOAT8_SCALES, "input_scale", "weight_scale_ub", "input_scale_ub")


class FolderSource:
    """A folder's matrices under the names they have when they are plain, however they are stored."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._files = SafetensorsFiles(folder)
        stored = stored_quantization(folder)
        self._block = stored.block if stored else None
        self._stored: dict[str, Format] = {}
        self._names = set(self._files.names)
        if stored is not None:
            self._find_matrices(stored)

    def names(self) -> Iterable[str]:
        """See Source."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source."""
        if name in self._stored:
            return self._stored[name].shape(self._files, _stem(name))
        return self._files.shape(name)

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        """See Source."""
        if name in self._stored:
            self._matrix(name, rows).write_into(out)
            return
        found = self._files.tensor(name, rows)
        if found.dtype == torch.float8_e4m3fn and (scale := self._float8_scale(name)) is not None:
            out.copy_(_float8(found, rows, scale, self._block))
            return
        if not found.dtype.is_floating_point or found.dtype.itemsize < 2:
            raise ModelFileError(
                f"{self.path}: tensor {name!r} is stored as {found.dtype}, which is not supported; "
                "use weights in float32, float16 or bfloat16"
            )
        out.copy_(found)

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        return self._matrix(name, rows).grouped() if name in self._stored else None

    def _find_matrices(self, stored: StoredQuantization) -> None:
        hidden: set[str] = set()
        for name in self._files.names:
            stem, _, part = name.rpartition(".")
            if name.endswith(_CACHE_SCALES) or (part in _FLOAT8_COMPANIONS and f"{stem}.weight" in self._files):
                hidden.add(name)
            for form in formats_of(stored):
                if part == form.marker and self._is(form, stem):
                    self._stored[f"{stem}.weight"] = form
                    hidden |= {name, *(f"{stem}.{companion}" for companion in form.companions)}
        # AutoGPTQ writes a bias beside every matrix that it quantizes, of zeros where the model has none.
        biases = (f"{_stem(name)}.bias" for name in self._stored)
        hidden |= {name for name in biases if name in self._files and not self._files.tensor(name).any()}
        self._names = (self._names - hidden) | self._stored.keys()

    def _is(self, form: Format, stem: str) -> bool:
        plain = f"{stem}.weight"
        if "weight" in form.companions:  # scales stand beside matrices of int8, and beside those of float8
            return plain in self._files and self._files.tensor(plain, slice(0, 1)).dtype == torch.int8
        return plain not in self._files

    def _matrix(self, name: str, rows: slice) -> StoredMatrix:
        try:
            return self._stored[name].read(self._files, _stem(name), rows)
        except (KeyError, IndexError, RuntimeError, ValueError) as error:
            raise ModelFileError(
                f"{self.path}: the parts of matrix {name!r} do not fit together ({error}); download the model again"
            ) from None

    def _float8_scale(self, name: str) -> Tensor | None:
        found = [f"{_stem(name)}.{part}" for part in _FLOAT8_SCALES if f"{_stem(name)}.{part}" in self._files]
        return self._files.tensor(found[0]) if found else None


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def _float8(codes: Tensor, rows: slice, scales: Tensor, block: tuple[int, int] | None) -> Tensor:
    """Numbers of some rows; scales are one for all, one for each row, or one for each block of rows and columns."""
    scales, values = scales.to(torch.float32), codes.to(torch.float32)
    if scales.numel() == 1:
        return values * scales.view(())
    if block is None:
        return values * scales.view(-1, 1)[rows]
    by_row = scales[torch.arange(rows.start, rows.stop) // block[0]]
    return values * by_row[:, torch.arange(codes.shape[1]) // block[1]]
