"""Weights into a network."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tidegate_engine.files.config import LayerKind, ModelConfig
from tidegate_engine.files.families import Activation
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import AttentionSpec, Kernels, Linear, Matrix
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.llama import Layer, Llama
from tidegate_engine.model.mlp import GatedMLP, MixtureOfExperts, gelu_tanh_and_mul
from tidegate_engine.model.rope import Rotary, rotary, rotated_first
from tidegate_engine.model.shares import Shares, share
from tidegate_engine.model.weights import Weights

_EMBEDDING, _HEAD, _ROPE_FACTORS = "model.embed_tokens.weight", "lm_head.weight", "rope_factors.weight"
_READ_WITH_CONFIG = ("rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors of GGUF files that the configuration was made with."""


def build(config: ModelConfig, weights: Weights, shard: Shard, kernels: Kernels, device: str) -> Llama:
    """The network of one rank. Raises ModelFileError where the file is not the configured model."""
    shares = share(config, shard)
    plane = (config.vocab_size, config.hidden_size)
    embedding = weights.matrix([_EMBEDDING], [slice(0, config.vocab_size)], [plane])
    if config.tied_embeddings:
        head = _rows(embedding, shares.vocabulary)
        weights.ignore(_HEAD)
    else:
        head = weights.matrix([_HEAD], [shares.vocabulary], [plane])
    for name in _READ_WITH_CONFIG:
        weights.ignore(name)
    builder = _LayerBuilder(config, weights, shares, shard, kernels, device)
    layers = [builder.layer(index) for index in range(config.num_layers)]
    norm = builder.norm("model.norm.weight", config.hidden_size)
    weights.finish()
    return Llama(config, shard, shares, kernels, embedding, layers, norm, kernels.linear(head, None), weights.dtype)


def _rows(matrix: Matrix, wanted: slice | Tensor) -> Matrix:
    return matrix.rows(wanted) if isinstance(matrix, GroupedMatrix) else matrix[wanted]


@dataclass(frozen=True, slots=True)
class _LayerBuilder:
    config: ModelConfig
    weights: Weights
    shares: Shares
    shard: Shard
    kernels: Kernels
    device: str
    rotaries: dict[LayerKind, Rotary] = field(default_factory=dict)

    def layer(self, index: int) -> Layer:
        config, shares, kind = self.config, self.shares, self.config.layer(index)
        prefix = f"model.layers.{index}."
        attention = prefix + "self_attn."
        hidden, queries = config.hidden_size, config.num_heads * config.head_dim
        post_norms = config.family.post_norms
        return Layer(
            attention_norm=self.norm(prefix + "input_layernorm.weight", hidden),
            qkv=self._qkv(attention),
            query_norm=self._head_norm(attention + "q_norm.weight"),
            key_norm=self._head_norm(attention + "k_norm.weight"),
            output=self._columns(attention + "o_proj", shares.queries, (hidden, queries), config.output_bias),
            attention_post_norm=self.norm(prefix + "post_attention_layernorm.weight", hidden) if post_norms else None,
            mlp_norm=self.norm(
                prefix + ("pre_feedforward_layernorm" if post_norms else "post_attention_layernorm") + ".weight", hidden
            ),
            mlp=self._experts(prefix + "mlp.") if kind.experts else self._mlp(prefix + "mlp.", shares.mlp, None),
            mlp_post_norm=self.norm(prefix + "post_feedforward_layernorm.weight", hidden) if post_norms else None,
            attention=AttentionSpec(
                config.attention_scale, config.window if kind.windowed else None, config.attention_softcap
            ),
            rotary=self._rotary(kind),
        )

    def norm(self, name: str, size: int) -> Tensor:
        """A norm's weight; those kept less one are near zero, and stay in float32 so that one does not swallow them."""
        if not self.config.norms_less_one:
            return self.weights.whole(name, (size,))
        return self.weights.whole(name, (size,), torch.float32) + 1

    def _qkv(self, attention: str) -> Linear:
        config, shares = self.config, self.shares
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        names = [attention + "q_proj", attention + "k_proj", attention + "v_proj"]
        wanted = [shares.queries, shares.keys, shares.keys]
        sizes = [queries, keys, keys]
        weight = self.weights.matrix(
            [f"{name}.weight" for name in names], wanted, [(size, config.hidden_size) for size in sizes]
        )
        bias: Tensor | None = None
        if config.qkv_bias:
            bias = self.weights.rows([f"{name}.bias" for name in names], wanted, [(size,) for size in sizes])
        if config.rotated < config.head_dim:
            order = self._paired_across_halves()
            weight, bias = _rows(weight, order), None if bias is None else bias[order]
        return self.kernels.linear(weight, bias)

    def _paired_across_halves(self) -> Tensor:
        """The order of this rank's rows of queries, keys and values where only a part of each head is rotated."""
        config, shares = self.config, self.shares
        turned = shares.query_heads + shares.kv_heads
        starts = torch.arange(turned).unsqueeze(1) * config.head_dim
        rows = (starts + rotated_first(config.head_dim, config.rotated)).flatten()
        return torch.cat((rows, torch.arange(len(rows), len(rows) + shares.kv_heads * config.head_dim))).to(self.device)

    def _mlp(self, prefix: str, wanted: slice, width: int | None) -> GatedMLP:
        """One MLP of the inner size `width`, the configuration's where it is None."""
        config = self.config
        width = width or config.intermediate_size
        shape = (width, config.hidden_size)
        return GatedMLP(
            gate_up=self._rows([prefix + "gate_proj", prefix + "up_proj"], [wanted] * 2, [shape] * 2, config.mlp_bias),
            down=self._columns(prefix + "down_proj", wanted, (config.hidden_size, width), config.mlp_bias),
            gated=self.kernels.silu_and_mul if config.activation is Activation.SILU else gelu_tanh_and_mul,
        )

    def _experts(self, prefix: str) -> MixtureOfExperts:
        experts = self.config.experts
        if experts is None:
            raise ValueError("a layer of experts in a configuration that has none")
        router = self.weights.whole(prefix + "gate.weight", (experts.count, self.config.hidden_size))
        return MixtureOfExperts(
            self.kernels.linear(router, None),
            [
                self._mlp(f"{prefix}experts.{index}.", self.shares.expert, experts.intermediate_size)
                for index in range(experts.count)
            ],
            experts,
        )

    def _rotary(self, kind: LayerKind) -> Rotary:
        if kind not in self.rotaries:
            pairs = (self.config.rotated // 2,)
            factors = self.weights.whole(_ROPE_FACTORS, pairs) if _ROPE_FACTORS in self.weights else None
            self.rotaries[kind] = rotary(self.config, kind, factors).to(self.device)
        return self.rotaries[kind]

    def _rows(self, names: list[str], wanted: list[slice], shapes: list[tuple[int, int]], biased: bool) -> Linear:
        weight = self.weights.matrix([f"{name}.weight" for name in names], wanted, shapes)
        bias = (
            self.weights.rows([f"{name}.bias" for name in names], wanted, [s[:1] for s in shapes]) if biased else None
        )
        return self.kernels.linear(weight, bias)

    def _columns(self, name: str, wanted: slice, shape: tuple[int, int], biased: bool) -> Linear:
        weight = self.weights.columns(f"{name}.weight", wanted, shape)
        bias = self.weights.whole(f"{name}.bias", shape[:1]) if biased else None
        # The ranks' results are added up: one of them brings the bias.
        return self.kernels.linear(weight, bias if self.shard.rank == 0 else None)

    def _head_norm(self, name: str) -> Tensor | None:
        if not self.config.family.qk_norm:
            return None
        weight = self.norm(name, self.config.head_dim)
        if self.config.rotated < self.config.head_dim:
            weight = weight[rotated_first(self.config.head_dim, self.config.rotated).to(self.device)]
        return weight
