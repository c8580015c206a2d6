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
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + pair / 10 for pair in range(4)],
    "long_factor": [2.0 + pair for pair in range(4)],
    "original_max_position_embeddings": 64,
}
_PARTLY = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}
_WINDOWS = ["sliding_attention", "full_attention"]
_EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
_LLAMA = (transformers.LlamaConfig, transformers.LlamaForCausalLM)
_SMOLLM3 = (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM)
_MISTRAL = (transformers.MistralConfig, transformers.MistralForCausalLM)
_QWEN2 = (transformers.Qwen2Config, transformers.Qwen2ForCausalLM)
_QWEN3 = (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)
_QWEN3_MOE = (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM)
_MIXTRAL = (transformers.MixtralConfig, transformers.MixtralForCausalLM)
_GEMMA2 = (transformers.Gemma2Config, transformers.Gemma2ForCausalLM)
_GEMMA3 = (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM)
_PHI3 = (transformers.Phi3Config, transformers.Phi3ForCausalLM)
_MADE: dict[str, tuple[tuple[type, type], dict[str, Any]]] = {
    "Llama": (_LLAMA, {}),
    "Llama with tied embeddings": (_LLAMA, {"tie_word_embeddings": True}),
    "Llama with biases": (_LLAMA, {"attention_bias": True, "mlp_bias": True}),
    "Llama 3.1's long context": (_LLAMA, {"rope_parameters": _LLAMA3}),
    "Llama with 9 heads over 3": (
        _LLAMA,
        {"num_attention_heads": 9, "hidden_size": 144, "tie_word_embeddings": True, "vocab_size": 100},
    ),
    "SmolLM3": (_SMOLLM3, {"num_hidden_layers": 5}),
    "SmolLM3 with windows where it rotates nothing": (
        _SMOLLM3,
        {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 9, "tie_word_embeddings": False},
    ),
    "Mistral": (_MISTRAL, {"sliding_window": None}),
    "Mistral with a window": (_MISTRAL, {"sliding_window": 21}),
    "Qwen2": (_QWEN2, {}),
    "Qwen2 with a window from its second layer on": (
        _QWEN2,
        {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    ),
    "Qwen2 with YaRN": (_QWEN2, {"rope_parameters": _YARN}),
    "Qwen3": (_QWEN3, {"head_dim": 32}),
    "Qwen3 with YaRN of a whole ramp": (_QWEN3, {"rope_parameters": _YARN | {"attention_factor": 1.3, "beta_fast": 8}}),
    "Mixtral": (_MIXTRAL, {"num_local_experts": 4}),
    "Mixtral with a window": (_MIXTRAL, {"num_local_experts": 4, "sliding_window": 17}),
    "Qwen3-MoE": (_QWEN3_MOE, _EXPERTS | {"norm_topk_prob": True}),
    "Qwen3-MoE, weights as the router gives them, its first layer dense": (
        _QWEN3_MOE,
        _EXPERTS | {"mlp_only_layers": [0], "num_hidden_layers": 3},
    ),
    "Gemma 2": (
        _GEMMA2,
        {"sliding_window": 15, "num_hidden_layers": 3, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 4.0},
    ),
    "Gemma 2 of listed layers, without caps": (
        _GEMMA2,
        {
            "sliding_window": 15,
            "layer_types": _WINDOWS[::-1],
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
    ),
    "Gemma 3": (_GEMMA3, {"sliding_window": 15, "num_hidden_layers": 7, "query_pre_attn_scalar": 20}),
    "Gemma 2 of its usual scale": (_GEMMA2, {"sliding_window": 15, "query_pre_attn_scalar": 16}),
    "Gemma 3 of its usual scale": (
        _GEMMA3,
        {"sliding_window": 15, "num_hidden_layers": 7, "query_pre_attn_scalar": 16},
    ),
    "Gemma 3 with a stretched global context": (
        _GEMMA3,
        {
            "sliding_window": 15,
            "num_hidden_layers": 6,
            "query_pre_attn_scalar": 16,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
    "Gemma 3 with a stretched context": (
        _GEMMA3,
        {
            "sliding_window": 15,
            "layer_types": _WINDOWS,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 7_000.0},
            },
        },
    ),
    "Phi-3": (_PHI3, {}),
    "Phi-3 with a window": (_PHI3, {"sliding_window": 30}),
    "Phi-3 rotated in part": (_PHI3, {"rope_parameters": _PARTLY}),
    "Phi-3 with LongRoPE": (
        _PHI3,
        {"head_dim": 8, "rope_parameters": _LONGROPE, "original_max_position_embeddings": 64},
    ),
}
LONGROPE = "Phi-3 with LongRoPE"
NAMES = tuple(name for name in _MADE if name != LONGROPE)
"""All but the one whose angles depend on the longest context that is asked for."""


def save_small_model(name: str, folder: Path, shard_size: str = "1GB") -> transformers.PreTrainedModel:
    """Make the model called so, with weights large enough to matter, save it, and return it to compare with."""
    (config_type, model_type), changes = _MADE[name]
    torch.manual_seed(1)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = config_type(**(_SHAPE | ids | changes), initializer_range=0.2)
    # Its other implementations cap no scores.
    config._attn_implementation = "eager"
    model = model_type(config).eval()
    less_one = 1.0 if name.startswith("Gemma") else 0.0
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith(".bias"):  # transformers begins with zeros and ones
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
        elif parameter_name.endswith(("norm.weight", "layernorm.weight")):
            torch.nn.init.normal_(parameter, mean=1.0 - less_one, std=0.3)
        elif ".experts." in parameter_name or parameter_name.endswith(".gate.weight"):
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model
