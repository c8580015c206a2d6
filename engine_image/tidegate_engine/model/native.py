"""A network of the plain Llama family as one call of the compiled library: no Python between its layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import Linear
from tidegate_engine.kernels.native import WIDEST_HIDDEN, PackedLinear, PackedMatrix, fits, native_spec, readable
from tidegate_engine.kernels.native_library import Heads, Layer, Model, Paging, Step
from tidegate_engine.kernels.native_speed import read_rate
from tidegate_engine.model.batch import ForwardBatch
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.llama import Layer as LlamaLayer
from tidegate_engine.model.llama import Llama
from tidegate_engine.model.mlp import GatedMLP


@dataclass(slots=True)
class _Bound:
    """The model with the cache it was last used with, as the library sees them."""

    kv: KVCache
    layers: object
    model: Model


class NativeLlama:
    """Computes what the network it is made of computes; other caches than float16 are left to that network."""

    def __init__(self, network: Llama, head: PackedLinear, embedding: PackedMatrix) -> None:
        self._network, self._head, self._embedding = network, head, embedding
        self._team = head.matrix.team
        self._bound: _Bound | None = None
        # Kept, for the library sees only their addresses.
        self._norms = [_kept(tensor) for layer in network.layers for tensor in _norms(layer)]
        self._last_norm = network.norm.to(torch.float32)

    @property
    def by_layers(self) -> Llama:
        """The network it was made of."""
        return self._network

    @property
    def num_bytes(self) -> int:
        """What a step of one token reads of the weights."""
        linears = [linear for layer in self._network.layers for linear in _linears(layer)]
        return sum(linear.matrix.num_bytes for linear in (*linears, self._head) if isinstance(linear, PackedLinear))

    def read_rate(self) -> float:
        """Bytes a second at which one token reads the head, the largest of the matrices."""
        return read_rate(self._head)

    def forward(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """See Network."""
        return self.logits(self.hidden(batch, kv))

    def logits(self, x: Tensor) -> Tensor:
        """See Network."""
        return self._network.logits(x)

    def hidden(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """See Network."""
        if not readable(kv.keys[0]):
            return self._network.hidden(batch, kv)
        if self._bound is None or self._bound.kv is not kv:
            self._bound = self._bind(kv)
        cos, sin = self._network.layers[0].rotary.angles(batch.positions)
        out = torch.empty(len(batch.logit_rows), self._network.config.hidden_size)
        step = Step(
            Paging(
                batch.query_start.data_ptr(),
                batch.context_lens.data_ptr(),
                batch.block_tables.data_ptr(),
                len(batch.context_lens),
                batch.block_tables.stride(0),
            ),
            len(batch.token_ids),
            len(batch.logit_rows),
            batch.token_ids.data_ptr(),
            batch.slots.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            batch.logit_rows.data_ptr(),
        )
        team = self._team
        team.checked(team.library.tg_hidden(team.pointer, self._bound.model, step, out.data_ptr()))
        return out

    def _bind(self, kv: KVCache) -> _Bound:
        network, config = self._network, self._network.config
        count = len(network.layers)
        layers = (Layer * count)()
        for index, layer in enumerate(network.layers):
            norms = self._norms[index * 4 : index * 4 + 4]
            linears = [linear for linear in _linears(layer) if isinstance(linear, PackedLinear)]
            layers[index] = Layer(
                *[None if norm is None else norm.data_ptr() for norm in norms],
                *[linear.matrix.pointer for linear in linears],
                *[None if linear.bias is None else linear.bias.data_ptr() for linear in linears],
                kv.keys[index].data_ptr(),
                kv.values[index].data_ptr(),
            )
        spec = native_spec(network.layers[0].attention)
        model = Model(
            layers,
            count,
            config.hidden_size,
            config.intermediate_size,
            config.norm_eps,
            Heads(config.num_heads, config.num_kv_heads, config.head_dim, *spec),
            self._embedding.pointer,
            self._last_norm.data_ptr(),
        )
        return _Bound(kv, layers, model)


def native_network(network: Llama) -> NativeLlama | None:
    """The same network in the library's hands, or None where it has a part that the library's pass over it has not."""
    head, embedding, first = network.head, network.embedding, network.layers[0]
    if network.shard.size > 1 or network.adapters is not None or network.config.family.scaled_embedding:
        return None
    if network.config.hidden_size > WIDEST_HIDDEN:
        return None
    if not all(_is_plain(layer, network) and _is_like(layer, first) for layer in network.layers):
        return None
    if not isinstance(head, PackedLinear) or not isinstance(embedding, GroupedMatrix) or not fits(embedding):
        return None
    tied = network.config.tied_embeddings
    return NativeLlama(network, head, head.matrix if tied else PackedMatrix(head.matrix.team, embedding))


def _is_plain(layer: LlamaLayer, network: Llama) -> bool:
    """Whether a layer is two norms, attention and a gated MLP of SiLU, its matrices quantized."""
    if not isinstance(layer.mlp, GatedMLP) or layer.mlp.gated != network.kernels.silu_and_mul:
        return False
    if layer.attention_post_norm is not None or layer.mlp_post_norm is not None:
        return False
    return all(isinstance(linear, PackedLinear) for linear in _linears(layer))


def _is_like(layer: LlamaLayer, other: LlamaLayer) -> bool:
    return layer.attention == other.attention and layer.rotary is other.rotary


def _linears(layer: LlamaLayer) -> tuple[Linear, ...]:
    inner = (layer.mlp.gate_up, layer.mlp.down) if isinstance(layer.mlp, GatedMLP) else ()
    return layer.qkv, layer.output, *inner


def _norms(layer: LlamaLayer) -> tuple[Tensor | None, ...]:
    return layer.attention_norm, layer.mlp_norm, layer.query_norm, layer.key_norm


def _kept(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.to(torch.float32).contiguous()
