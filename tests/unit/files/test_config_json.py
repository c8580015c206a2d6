"""What config.json says, in the forms that checkpoints have had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tidegate_engine.files.config import LayerKind, LinearScaling, LongRopeScaling, ModelConfig, YarnScaling
from tidegate_engine.files.config_json import from_folder
from tidegate_engine.files.families import Activation

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 32768,
}


def read(folder: Path, architecture: str, **fields: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(SHAPE | {"architectures": [architecture]} | fields))
    return from_folder(folder)


def windowed(config: ModelConfig) -> list[int]:
    return [index for index in range(config.num_layers) if config.layer(index).windowed]


def test_a_bare_llama_is_plain(tmp_path: Path) -> None:
    config = read(tmp_path, "LlamaForCausalLM")
    assert config.is_plain
    assert (config.head_dim, config.rope_theta, config.tied_embeddings) == (8, 10_000.0, False)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        pytest.param("LlamaForCausalLM", {"sliding_window": 9}, id="Llama, where transformers knows no window"),
        pytest.param("MistralForCausalLM", {"sliding_window": None}, id="Mistral without a window"),
        pytest.param("Qwen2ForCausalLM", {"sliding_window": 9, "max_window_layers": 2}, id="Qwen2's, switched off"),
        pytest.param("Qwen3ForCausalLM", {"sliding_window": 9, "use_sliding_window": False}, id="Qwen3's, off"),
    ],
)
def test_windows_that_do_not_count(architecture: str, fields: dict[str, Any], tmp_path: Path) -> None:
    config = read(tmp_path, architecture, **fields)
    assert (windowed(config), config.window, config.is_plain) == ([], None, True)


@pytest.mark.parametrize(
    ("architecture", "fields", "wanted"),
    [
        pytest.param("MistralForCausalLM", {}, range(8), id="Mistral: all"),
        pytest.param("Phi3ForCausalLM", {}, range(8), id="Phi-3: all"),
        pytest.param(
            "Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 6}, [6, 7], id="Qwen2: the last"
        ),
        pytest.param("Gemma2ForCausalLM", {}, [0, 2, 4, 6], id="Gemma 2: every other"),
        pytest.param("Gemma3ForCausalLM", {}, [0, 1, 2, 3, 4, 6, 7], id="Gemma 3: all but the sixth"),
        pytest.param("Gemma3ForCausalLM", {"sliding_window_pattern": 2}, [0, 2, 4, 6], id="Gemma 3 by its pattern"),
    ],
)
def test_which_layers_have_the_window(
    architecture: str, fields: dict[str, Any], wanted: list[int], tmp_path: Path
) -> None:
    config = read(tmp_path, architecture, sliding_window=16, **fields)
    assert windowed(config) == list(wanted)
    assert (config.window, config.max_position) == (16, 32768)
    assert not config.is_plain


def test_gemma_3_as_its_first_checkpoints_wrote_it(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "Gemma3ForCausalLM",
        rope_theta=1_000_000,
        rope_local_base_freq=10_000,
        rope_scaling={"factor": 8.0, "rope_type": "linear"},
        sliding_window=512,
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256,
    )
    assert (config.rope_theta, config.local_rope_theta) == (1_000_000.0, 10_000.0)
    assert config.rope_scaling == LinearScaling(8.0)
    assert (config.attention_scale, config.tied_embeddings, config.norms_less_one) == (1 / 16, True, True)


def test_gemma_2_said_gelu_and_meant_its_approximation(tmp_path: Path) -> None:
    assert read(tmp_path, "Gemma2ForCausalLM", hidden_act="gelu").activation is Activation.GELU_TANH


def test_yarn_as_the_cards_of_qwen_tell_to_add_it_makes_contexts_longer(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = read(tmp_path, "Qwen2ForCausalLM", rope_scaling=yarn)
    assert config.max_position == 131072
    assert config.rope_scaling == YarnScaling(4.0, 32768, 32.0, 1.0, config.rope_gain)
    assert config.rope_gain == pytest.approx(1.1386294)


@pytest.mark.parametrize("kind", ["su", "longrope", "yarn"])
def test_phi_3_under_the_names_its_scaling_has_had(kind: str, tmp_path: Path) -> None:
    scaling = {"type": kind, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = read(tmp_path, "Phi3ForCausalLM", rope_scaling=scaling, original_max_position_embeddings=4096)
    assert config.rope_scaling == LongRopeScaling((1.0,) * 4, (2.0,) * 4, 4096, config.rope_gain)
    assert config.rope_gain == pytest.approx(1.118034)  # the root of 1 + ln 8 / ln 4096


def test_smollm3_rotates_nothing_in_each_fourth_layer(tmp_path: Path) -> None:
    config = read(tmp_path, "SmolLM3ForCausalLM")
    assert [index for index in range(8) if not config.layer(index).rotated] == [3, 7]
    assert config.rope_theta == 2_000_000.0


def test_qwen3_moe_of_sparse_and_dense_layers(tmp_path: Path) -> None:
    fields = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
    config = read(tmp_path, "Qwen3MoeForCausalLM", mlp_only_layers=[1], decoder_sparse_step=2, **fields)
    assert [index for index in range(8) if config.layer(index).experts] == [3, 5, 7]
    assert config.experts is not None
    assert config.experts.renormalised


def test_mixtral_always_lets_its_weights_add_up_to_one(tmp_path: Path) -> None:
    config = read(tmp_path, "MixtralForCausalLM", num_local_experts=8, num_experts_per_tok=2)
    assert config.pattern == (LayerKind(experts=True),)
    assert config.experts is not None
    assert (config.experts.renormalised, config.experts.intermediate_size) == (True, 64)
