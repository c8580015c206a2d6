"""What sets model families apart, each a short description: the network has these features and knows no names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Activation(StrEnum):
    """What an MLP's gate goes through, by the names of config.json."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


class Windows(StrEnum):
    """Which layers have the configuration's sliding window, where it does not list them itself."""

    NONE = "a window that is named has no effect"
    EVERY_LAYER = "all of them"
    AFTER_MAX_WINDOW_LAYERS = "those from max_window_layers on (Qwen)"
    UNROTATED = "those that rotate nothing (SmolLM3)"
    ALL_BUT_EVERY_SIXTH = "all but each sixth (Gemma 3)"
    EVERY_OTHER = "the first, the third and so on (Gemma 2)"


@dataclass(frozen=True, slots=True)
class Family:
    """A family's features, and how its files write them."""

    qk_norm: bool = False
    """each head's query and key are normalised before they are rotated"""
    post_norms: bool = False
    """what attention and MLP give is normalised before it is added to the residual"""
    scaled_embedding: bool = False
    """embeddings are multiplied by the root of the hidden size"""
    norms_less_one: bool = False
    """Hugging Face folders hold norms' weights less one; GGUF files hold them whole"""
    activation: Activation = Activation.SILU
    fused: bool = False
    """one tensor holds queries, keys and values, another gate and up"""
    permuted: bool = False
    """GGUF files hold the rows of queries and keys for pairs that lie side by side (ggml's rope type NORM)"""
    qkv_bias: bool = False
    """queries, keys and values have biases, and the configuration does not say so"""
    windows: Windows = Windows.NONE
    windows_switched: bool = False
    """a window counts only where use_sliding_window says so"""
    rope_theta: float = 10_000.0
    """where the file does not say"""
    local_rope_theta: float | None = None
    """of layers with a window, where these turn at a speed of their own"""
    tied: bool = False
    """the head is the embedding, where config.json does not say"""
    nope_interval: int | None = None
    """each so many-th layer rotates nothing, where the file does not list them"""


LLAMA = Family(permuted=True)
FAMILIES = {
    "llama": LLAMA,
    "mistral": Family(permuted=True, windows=Windows.EVERY_LAYER),
    "mixtral": Family(permuted=True, windows=Windows.EVERY_LAYER, rope_theta=1_000_000.0),
    "smollm3": Family(
        permuted=True,
        tied=True,
        windows=Windows.UNROTATED,
        windows_switched=True,
        rope_theta=2_000_000.0,
        nope_interval=4,
    ),
    "qwen2": Family(qkv_bias=True, windows=Windows.AFTER_MAX_WINDOW_LAYERS, windows_switched=True),
    "qwen3": Family(qk_norm=True, windows=Windows.AFTER_MAX_WINDOW_LAYERS, windows_switched=True),
    "qwen3moe": Family(qk_norm=True, windows=Windows.EVERY_LAYER, windows_switched=True),
    "gemma2": Family(
        post_norms=True,
        scaled_embedding=True,
        tied=True,
        norms_less_one=True,
        activation=Activation.GELU_TANH,
        windows=Windows.EVERY_OTHER,
    ),
    "gemma3": Family(
        qk_norm=True,
        post_norms=True,
        scaled_embedding=True,
        tied=True,
        norms_less_one=True,
        activation=Activation.GELU_TANH,
        windows=Windows.ALL_BUT_EVERY_SIXTH,
        rope_theta=1_000_000.0,
        local_rope_theta=10_000.0,
    ),
    "phi3": Family(fused=True, windows=Windows.EVERY_LAYER),
}
"""By the name that GGUF files have for an architecture; mistral and mixtral are `llama` there."""

HUGGING_FACE = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "SmolLM3ForCausalLM": "smollm3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
}
"""config.json's names of architectures, and their families."""

GGUF = ("llama", "smollm3", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3")
"""general.architecture's values that are read."""
