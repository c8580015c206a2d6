"""Tensors that files hold in one piece, or under other names, as the parts that a network is built from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from tidegate_engine.files.config import ModelConfig
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.model.source import Source


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows of a stored tensor."""

    stored: str
    start: int
    count: int
    total: int
    """rows that the stored tensor must have"""


_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


class Parts:
    """A source whose fused projections, stacked experts and Mixtral's names are those of Llama and Qwen3-MoE."""

    def __init__(self, source: Source, config: ModelConfig) -> None:
        self.path = source.path
        self._source = source
        self._parts: dict[str, _Part] = {}
        self._renamed: dict[str, str] = {}
        for name in source.names():
            self._add(name, config)

    def names(self) -> Iterable[str]:
        """See Source."""
        return [*self._parts, *self._renamed]

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source; of a part whose tensor has the wrong size, the whole tensor's."""
        part = self._parts.get(name)
        if part is None:
            return self._source.shape(self._renamed[name])
        stored = self._source.shape(part.stored)
        return (part.count, *stored[1:]) if stored[0] == part.total else stored

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        """See Source."""
        self._source.read(*self._place(name, rows), out)

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        if name not in self._parts and name not in self._renamed:
            return None
        return self._source.grouped(*self._place(name, rows))

    def _place(self, name: str, rows: slice) -> tuple[str, slice]:
        part = self._parts.get(name)
        if part is None:
            return self._renamed[name], rows
        return part.stored, slice(part.start + rows.start, part.start + rows.stop)

    def _add(self, name: str, config: ModelConfig) -> None:
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        layer, _, inner = name.rpartition("self_attn.") if "self_attn." in name else name.rpartition("mlp.")
        if inner == "qkv_proj.weight":
            self._cut(
                name,
                [
                    (f"{layer}self_attn.{part}_proj.weight", size)
                    for part, size in (("q", queries), ("k", keys), ("v", keys))
                ],
            )
        elif inner == "gate_up_proj.weight":
            self._cut(name, [(f"{layer}mlp.{part}_proj.weight", config.intermediate_size) for part in ("gate", "up")])
        elif config.experts is not None and (found := re.fullmatch(r"experts\.(gate|up|down)_proj\.weight", inner)):
            size = config.hidden_size if found[1] == "down" else config.experts.intermediate_size
            self._cut(
                name,
                [(f"{layer}mlp.experts.{index}.{found[1]}_proj.weight", size) for index in range(config.experts.count)],
            )
        else:
            self._renamed[_usual(name)] = name

    def _cut(self, stored: str, parts: list[tuple[str, int]]) -> None:
        total = sum(size for _, size in parts)
        start = 0
        for name, size in parts:
            self._parts[name] = _Part(stored, start, size, total)
            start += size


def _usual(name: str) -> str:
    """Qwen3-MoE's name of a tensor of Mixtral's; others are what they were."""
    name = name.replace(".block_sparse_moe.", ".mlp.")
    return re.sub(r"(\.experts\.\d+\.)(w[123])(\.\w+)$", lambda found: found[1] + _MIXTRAL[found[2]] + found[3], name)
