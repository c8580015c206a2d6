"""The decoder that all families are: what they compute otherwise is in the layers they are built of.

Shapes: T tokens, S sampled rows, H hidden, Hq and Hk this rank's query and key/value heads, D head, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from tidegate_engine.files.config import ModelConfig
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import Attention, AttentionSpec, HeadNorms, Kernels, Linear, Matrix, Paging
from tidegate_engine.model.adapters import Chosen, LayerAdapters, add_low_rank
from tidegate_engine.model.batch import ForwardBatch, Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.mlp import GatedMLP, MixtureOfExperts
from tidegate_engine.model.rope import Rotary
from tidegate_engine.model.shares import Shares


@dataclass(frozen=True, slots=True)
class Layer:
    """One block's weights on this rank."""

    attention_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Linear
    attention_post_norm: Tensor | None
    mlp_norm: Tensor
    mlp: GatedMLP | MixtureOfExperts
    mlp_post_norm: Tensor | None
    attention: AttentionSpec
    rotary: Rotary


@dataclass(frozen=True, slots=True)
class Llama:
    """One rank's network. A forward pass of more than one rank meets the others in the default process group."""

    config: ModelConfig
    shard: Shard
    shares: Shares
    kernels: Kernels
    embedding: Matrix
    """[V, H], whole on every rank: looking a row up costs nothing"""
    layers: list[Layer]
    norm: Tensor
    head: Linear
    """to this rank's share of V"""
    dtype: torch.dtype
    """of activations"""
    adapters: list[LayerAdapters] | None = None
    """by layer"""

    def forward(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """Logits float32 [S, V], the whole vocabulary on every rank; the batch's keys and values go into `kv`."""
        return self.logits(self.hidden(batch, kv))

    def hidden(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """What the head is given, [S, H], the same on every rank; the batch's keys and values go into `kv`."""
        paging = Paging(
            batch.query_start,
            batch.context_lens,
            batch.block_tables,
            batch.max_query_len,
            batch.max_context_len,
            kv.block_size,
        )
        # Layers that are alike share a plan and its angles.
        specs = dict.fromkeys(layer.attention for layer in self.layers)
        rotaries = dict.fromkeys(layer.rotary for layer in self.layers)
        plans = {spec: self.kernels.plan_attention(paging, spec) for spec in specs}
        angles = {rotary: rotary.angles(batch.positions) for rotary in rotaries}
        residual = self._embedded(batch.token_ids)
        x = self.kernels.rms_norm(residual, self.layers[0].attention_norm, self.config.norm_eps)
        following = [layer.attention_norm for layer in self.layers[1:]] + [self.norm]
        for index, (layer, next_norm) in enumerate(zip(self.layers, following, strict=True)):
            x = self._attention(index, x, angles[layer.rotary], batch, kv, plans[layer.attention])
            x, residual = self.kernels.add_rms_norm(x, residual, layer.mlp_norm, self.config.norm_eps)
            x = self._normalised(self._reduced(self._mlp(index, x, batch.adapters)), layer.mlp_post_norm)
            x, residual = self.kernels.add_rms_norm(x, residual, next_norm, self.config.norm_eps)
        return x[batch.logit_rows]

    def _embedded(self, token_ids: Tensor) -> Tensor:
        if isinstance(self.embedding, GroupedMatrix):
            found = self.embedding.rows(token_ids).dequantized().to(self.dtype)
        else:
            found = F.embedding(token_ids, self.embedding)
        if self.config.family.scaled_embedding:
            # The root is rounded to the type of activations, as in training; a number, since graphs copy no tensor.
            found = found * float(torch.tensor(self.config.hidden_size**0.5, dtype=self.dtype))
        return found

    def _attention(
        self,
        index: int,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        batch: ForwardBatch,
        kv: KVCache,
        attend: Attention,
    ) -> Tensor:
        layer, adapters = self.layers[index], self._adapters(index, batch.adapters)
        queries, keys = self.shares.query_heads, self.shares.kv_heads
        projected = layer.qkv(x)
        if adapters is not None:
            add_low_rank(projected, x, adapters.qkv, batch.adapters)
        qkv = projected.view(len(x), queries + 2 * keys, self.config.head_dim)
        norms: HeadNorms | None = None
        if layer.query_norm is not None and layer.key_norm is not None:
            norms = HeadNorms(layer.query_norm, layer.key_norm, self.config.norm_eps)
        key_cache, value_cache, scales = kv.keys[index], kv.values[index], kv.scales_of(index)
        query = self.kernels.rotate_and_write(qkv, angles, norms, key_cache, value_cache, batch.slots, scales)
        attended = attend(query, key_cache, value_cache, scales).flatten(1)
        found = layer.output(attended)
        if adapters is not None:
            add_low_rank(found, attended, adapters.output, batch.adapters)
        return self._normalised(self._reduced(found), layer.attention_post_norm)

    def _mlp(self, index: int, x: Tensor, chosen: Chosen) -> Tensor:
        mlp, adapters = self.layers[index].mlp, self._adapters(index, chosen)
        if adapters is None or isinstance(mlp, MixtureOfExperts):  # experts have none
            return mlp(x)
        return mlp.adapted(x, adapters, chosen)

    def _adapters(self, index: int, chosen: Chosen) -> LayerAdapters | None:
        """A layer's, in a step that has any."""
        return self.adapters[index] if chosen and self.adapters is not None else None

    def _normalised(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else self.kernels.rms_norm(x, weight, self.config.norm_eps)

    def _reduced(self, x: Tensor) -> Tensor:
        if self.shard.size > 1:
            dist.all_reduce(x)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """The head: [S, H] to float32 [S, V], the whole vocabulary on every rank."""
        if not len(x):  # a step of chunks that do not end their prompts; every rank has the same one
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        part = self.head(x).to(torch.float32)
        cap = self.config.logit_softcap
        if cap is not None:
            part = part.div_(cap).tanh_().mul_(cap)
        if self.shard.size == 1:
            return part
        padded = F.pad(part, (0, self.shares.vocabulary_step - part.shape[1]))
        parts = [torch.empty_like(padded) for _ in range(self.shard.size)]
        dist.all_gather(parts, padded)
        return torch.cat(parts, dim=1)[:, : self.config.vocab_size]
