"""Weights of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tidegate_engine.files import ModelFileError
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.files.gguf import GGUFFile
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.native import open_blocks
from tidegate_engine.model.unpack import READABLE, group_blocks, unpack_into

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "rope_freqs": "rope_factors",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FUSED = {"ffn_up": "mlp.gate_up_proj"}
"""GGUF's names of the parts outside and inside of layers, and Hugging Face's."""


class GGUFSource:
    """A GGUF file. The format stores the rows of `llama`'s queries and keys permuted; here they come in order."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self.path = file.path
        family = config.family
        self._inner = _INNER | (_POST_NORMS if family.post_norms else {}) | (_FUSED if family.fused else {})
        self._tensors = {self._name(name): tensor for name, tensor in file.tensors.items()}
        self._half = config.head_dim // 2 if family.permuted else 0
        for tensor in file.tensors.values():
            if tensor.type.name not in READABLE:
                raise ModelFileError(
                    f"{self.path}: tensor {tensor.name!r} is stored as {tensor.type.name}, which is not supported; "
                    f"use a file in {', '.join(READABLE)}"
                )

    def names(self) -> Iterable[str]:
        """See Source."""
        return self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source."""
        shape = self._tensors[name].shape
        # Experts lie one upon the other in three dimensions; here they are rows.
        return shape if len(shape) < 3 else (math.prod(shape[:-1]), shape[-1])

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        """See Source."""
        tensor = self._tensors[name]
        unpack_into(
            tensor.type.name, self._blocks(name, rows).view(-1, tensor.type.size), out.view(-1, tensor.type.block)
        )

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        if name not in self._tensors or len(self.shape(name)) != 2:
            return None
        kind, blocks = self._tensors[name].type.name, self._blocks(name, rows)
        return open_blocks(kind, blocks) or group_blocks(kind, blocks)

    def _blocks(self, name: str, rows: slice) -> Tensor:
        """Rows in order, uint8 [rows, blocks of a row, bytes of a block]."""
        tensor = self._tensors[name]
        raw = torch.frombuffer(tensor.data, dtype=torch.uint8).view(self.shape(name)[0], -1)[rows]
        if self._half and (".q_proj." in name or ".k_proj." in name):
            raw = raw.view(-1, self._half, 2, raw.shape[1]).transpose(1, 2)
        return raw.reshape(rows.stop - rows.start, -1, tensor.type.size)

    def _name(self, name: str) -> str:
        stem, _, kind = name.rpartition(".")
        if stem in _OUTER:
            return f"{_OUTER[stem]}.{kind}"
        first, _, rest = stem.partition(".")
        layer, _, part = rest.partition(".")
        if first == "blk" and part in self._inner:
            return f"model.layers.{layer}.{self._inner[part]}.{kind}"
        return name
