"""Small models with random weights, saved by transformers as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

_SHAPE = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_MADE: dict[str, tuple[type, type, dict[str, Any]]] = {
    "Llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
    "Llama with tied embeddings": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"tie_word_embeddings": True},
    ),
    "Llama with biases": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"attention_bias": True, "mlp_bias": True},
    ),
    "Llama 3.1's long context": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"rope_parameters": _LLAMA3},
    ),
    "Llama with 9 heads over 3": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"num_attention_heads": 9, "hidden_size": 144, "tie_word_embeddings": True, "vocab_size": 100},
    ),
    "Mistral": (transformers.MistralConfig, transformers.MistralForCausalLM, {"sliding_window": None}),
    "Qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, {}),
    "Qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {"head_dim": 32}),
}
NAMES = tuple(_MADE)


def save_small_model(name: str, folder: Path, shard_size: str = "1GB") -> transformers.PreTrainedModel:
    """Make the model called so, with weights large enough to matter, save it, and return it to compare with."""
    config_type, model_type, changes = _MADE[name]
    torch.manual_seed(1)
    config = config_type(**(_SHAPE | changes), initializer_range=0.2)
    model = model_type(config).eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith((".bias", "norm.weight")):  # transformers begins with zeros and ones
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model
