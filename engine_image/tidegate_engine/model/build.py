"""Weights into a network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tidegate_engine.files.config import ModelConfig
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import Kernels, Linear
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.llama import Layer, Llama
from tidegate_engine.model.rope import rope_frequencies
from tidegate_engine.model.shares import Shares, share
from tidegate_engine.model.weights import Weights

_EMBEDDING, _HEAD, _ROPE_FACTORS = "model.embed_tokens.weight", "lm_head.weight", "rope_factors.weight"


def build(config: ModelConfig, weights: Weights, shard: Shard, kernels: Kernels, device: str) -> Llama:
    """The network of one rank. Raises ModelFileError where the file is not the configured model."""
    shares = share(config, shard)
    plane = (config.vocab_size, config.hidden_size)
    embedding = weights.matrix([_EMBEDDING], [slice(0, config.vocab_size)], [plane])
    if config.tied_embeddings:
        head = (
            embedding.rows(shares.vocabulary) if isinstance(embedding, GroupedMatrix) else embedding[shares.vocabulary]
        )
        weights.ignore(_HEAD)
    else:
        head = weights.matrix([_HEAD], [shares.vocabulary], [plane])
    factors = weights.whole(_ROPE_FACTORS, (config.head_dim // 2,)) if _ROPE_FACTORS in weights else None
    frequencies = rope_frequencies(config, factors).to(device)
    builder = _LayerBuilder(config, weights, shares, shard, kernels)
    layers = [builder.layer(index) for index in range(config.num_layers)]
    norm = weights.whole("model.norm.weight", (config.hidden_size,))
    weights.finish()
    return Llama(config, shard, shares, kernels, embedding, layers, norm, kernels.linear(head, None), frequencies)


@dataclass(frozen=True, slots=True)
class _LayerBuilder:
    config: ModelConfig
    weights: Weights
    shares: Shares
    shard: Shard
    kernels: Kernels

    def layer(self, index: int) -> Layer:
        config, shares = self.config, self.shares
        hidden, width = config.hidden_size, config.intermediate_size
        prefix = f"model.layers.{index}."
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return Layer(
            attention_norm=self.weights.whole(prefix + "input_layernorm.weight", (hidden,)),
            qkv=self._rows(
                [attention + "q_proj", attention + "k_proj", attention + "v_proj"],
                [shares.queries, shares.keys, shares.keys],
                [(queries, hidden), (keys, hidden), (keys, hidden)],
                config.qkv_bias,
            ),
            query_norm=self._head_norm(attention + "q_norm.weight"),
            key_norm=self._head_norm(attention + "k_norm.weight"),
            output=self._columns(attention + "o_proj", shares.queries, (hidden, queries), config.output_bias),
            mlp_norm=self.weights.whole(prefix + "post_attention_layernorm.weight", (hidden,)),
            gate_up=self._rows(
                [mlp + "gate_proj", mlp + "up_proj"], [shares.mlp] * 2, [(width, hidden)] * 2, config.mlp_bias
            ),
            down=self._columns(mlp + "down_proj", shares.mlp, (hidden, width), config.mlp_bias),
        )

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
        return self.weights.whole(name, (self.config.head_dim,)) if self.config.qk_norm else None
