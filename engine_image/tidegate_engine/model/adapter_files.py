"""PEFT adapter folders to this rank's share of what they add."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tidegate_engine.files import ModelFileError
from tidegate_engine.files.adapter_config import AdapterConfig, read_adapter_config
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.model.adapters import Additions, LayerAdapters, LowRank
from tidegate_engine.model.rope import rotated_first
from tidegate_engine.model.shares import Shares

_NAME = re.compile(r"(?:base_model\.model\.)?model\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight")


@dataclass(frozen=True, slots=True)
class _Piece:
    """What of an adapted matrix this rank has."""

    wanted: Tensor
    """rows, in the order of its projection"""
    inputs: slice
    """columns"""
    columns: slice
    """of its projection's result, to which the rows belong"""


@dataclass(frozen=True, slots=True)
class _Target:
    """A matrix that may be adapted: its shape, the projection that it is a part of, and this rank's pieces of it."""

    shape: tuple[int, int]
    projection: str
    pieces: list[_Piece]


def load_adapters(
    folders: Sequence[Path], config: ModelConfig, shares: Shares, dtype: torch.dtype, device: str
) -> list[LayerAdapters]:
    """By layer, what the adapters add; they are numbered from 1. Raises ModelFileError for one that does not fit."""
    layers = [LayerAdapters() for _ in range(config.num_layers)]
    targets = _targets(config, shares)
    for number, folder in enumerate(folders, 1):
        _Reader(folder, read_adapter_config(folder), targets, dtype, device).add_to(layers, number)
    return layers


@dataclass(frozen=True, slots=True)
class _Reader:
    folder: Path
    config: AdapterConfig
    targets: dict[str, _Target]
    dtype: torch.dtype
    device: str

    def add_to(self, layers: list[LayerAdapters], number: int) -> None:
        path = self.folder / "adapter_model.safetensors"
        found: dict[tuple[int, str], dict[str, Tensor]] = {}
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - it is no dictionary
                    layer, module, half = self._place(path, name, len(layers))
                    found.setdefault((layer, module), {})[half] = file.get_tensor(name)
        except FileNotFoundError:
            raise ModelFileError(f"{path}: does not exist; download the adapter whole") from None
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{path}: is corrupt or truncated ({error}); download the file again") from None
        if not found:
            raise ModelFileError(f"{path}: adapts nothing; download the adapter again")
        for (layer, module), halves in found.items():
            target = self.targets[module]
            self._check(path, f"layer {layer}'s {module}", halves, target.shape)
            additions: Additions = getattr(layers[layer], target.projection)
            additions.setdefault(number, []).extend(self._parts(halves, target))

    def _place(self, path: Path, name: str, layers: int) -> tuple[int, str, str]:
        place = _NAME.fullmatch(name)
        if place is None or place[2] not in self.targets or int(place[1]) >= layers:
            raise ModelFileError(
                f"{path}: tensor {name!r} adapts no part of this model that may be adapted; these are "
                f"{', '.join(self.targets)} in its {layers} layers"
            )
        return int(place[1]), place[2], place[3]

    def _check(self, path: Path, where: str, halves: dict[str, Tensor], shape: tuple[int, int]) -> None:
        wanted = {"A": [self.config.rank, shape[1]], "B": [shape[0], self.config.rank]}
        for half, sizes in wanted.items():
            if half not in halves:
                raise ModelFileError(f"{path}: {where} lacks lora_{half}; download the adapter again")
            if list(halves[half].shape) != sizes:
                raise ModelFileError(
                    f"{path}: {where} has lora_{half} of {list(halves[half].shape)} where the model and r say {sizes}; "
                    "use an adapter of this model"
                )

    def _parts(self, halves: dict[str, Tensor], target: _Target) -> list[LowRank]:
        up = halves["B"].to(torch.float32) * self.config.scale
        return [
            LowRank(
                down=halves["A"][:, piece.inputs].to(self.device, self.dtype).contiguous(),
                up=up[piece.wanted].to(self.device, self.dtype),
                columns=piece.columns,
            )
            for piece in target.pieces
        ]


def _targets(config: ModelConfig, shares: Shares) -> dict[str, _Target]:
    """By PEFT's name. Experts cannot be adapted."""
    hidden, queries = config.hidden_size, config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    every, whole = torch.arange(hidden), slice(0, hidden)
    own = [_turned(config, shares.queries), _turned(config, shares.keys), _rows(shares.keys)]
    found = _joined("qkv", ("q_proj", "k_proj", "v_proj"), "qkv_proj", (queries, keys, keys), own, config)
    found["o_proj"] = _Target((hidden, queries), "output", [_Piece(every, shares.queries, whole)])
    if config.experts is None:
        width, rows = config.intermediate_size, _rows(shares.mlp)
        names = ("gate_proj", "up_proj")
        found |= _joined("gate_up", names, "gate_up_proj", (width, width), [rows, rows], config)
        found["down_proj"] = _Target((hidden, width), "down", [_Piece(every, shares.mlp, whole)])
    return found


def _joined(
    projection: str, names: Sequence[str], fused: str, sizes: Sequence[int], own: Sequence[Tensor], config: ModelConfig
) -> dict[str, _Target]:
    """Matrices that this rank computes as one projection, each adapted by itself or, where files fuse them, as one."""
    inputs = slice(0, config.hidden_size)
    targets: dict[str, _Target] = {}
    pieces: list[_Piece] = []
    start = column = 0
    for name, size, rows in zip(names, sizes, own, strict=True):
        columns = slice(column, column + len(rows))
        targets[name] = _Target((size, config.hidden_size), projection, [_Piece(rows, inputs, columns)])
        pieces.append(_Piece(rows + start, inputs, columns))
        start, column = start + size, columns.stop
    return {fused: _Target((start, config.hidden_size), projection, pieces)} if config.family.fused else targets


def _rows(part: slice) -> Tensor:
    return torch.arange(part.start, part.stop)


def _turned(config: ModelConfig, part: slice) -> Tensor:
    """Rows of queries or keys in the order in which the network has them; see rope.rotated_first."""
    if config.rotated == config.head_dim:
        return _rows(part)
    starts = torch.arange(part.start, part.stop, config.head_dim).unsqueeze(1)
    return (starts + rotated_first(config.head_dim, config.rotated)).flatten()
