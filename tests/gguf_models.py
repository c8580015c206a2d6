"""The small models as GGUF files, written by the gguf package as llama.cpp's converter writes them."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import torch
import transformers
from small_models import save_small_model

_ARCHITECTURES = {
    "llama": "llama",
    "mixtral": "llama",
    "smollm3": "smollm3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}


def save_small_gguf(name: str, folder: Path) -> tuple[transformers.PreTrainedModel, Path]:
    """Make the model called so; the model and its file."""
    model = save_small_model(name, folder)
    config = model.config
    architecture = _ARCHITECTURES[config.model_type]
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    _write_metadata(writer, config, architecture)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for tensor_name, tensor in _tensors(folder, config).items():
        stem, _, suffix = tensor_name.rpartition(".")
        written = names.get_name(stem)
        assert written is not None, tensor_name
        writer.add_tensor(f"{written}.{suffix}", tensor.numpy())
    for which in ("long", "short"):
        factors = (config.rope_parameters or {}).get(f"{which}_factor")
        if factors is not None:
            writer.add_tensor(f"rope_factors_{which}.weight", torch.tensor(factors).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, path


def _write_metadata(writer: gguf.GGUFWriter, config: transformers.PretrainedConfig, architecture: str) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture == "qwen3moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type in ("mixtral", "qwen3_moe"):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    rope = config.rope_parameters
    if architecture == "gemma3":
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(config.head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _tensors(folder: Path, config: transformers.PretrainedConfig) -> dict[str, torch.Tensor]:
    """By Hugging Face's names, as GGUF files hold them: q and k permuted, norms whole, experts stacked."""
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = {}
    experts: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if config.model_type in ("llama", "mixtral", "smollm3") and re.search(r"\.[qk]_proj\.", name):
            heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
            tensor = tensor.view(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
        if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
            tensor = tensor + 1
        one = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name)
        if one is None:
            found[name] = tensor.contiguous()
        else:
            experts.setdefault(f"{one[1]}.{one[3]}.weight", {})[int(one[2])] = tensor
    for name, by_index in experts.items():
        found[name] = torch.stack([by_index[index] for index in range(len(by_index))])
    return found
