"""What load() says of models that it cannot run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from small_gguf import F32, Q4_K, SHAPE, gguf_bytes, small_tensors
from tidegate_engine.files import ModelFileError
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard

WHOLE = gguf_bytes()
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def test_the_small_file_as_it_is_loads(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(WHOLE)
    model = load(tmp_path / "model.gguf", Shard(), "auto", None)
    assert (model.config.num_layers, model.config.vocab_size, model.kv_heads, model.dtype) == (1, 4, 1, torch.float32)


def _without(name: str) -> bytes:
    return gguf_bytes(tensors=[tensor for tensor in small_tensors() if tensor[0] != name])


GGUF = {
    "an architecture of another family": (
        gguf_bytes(SHAPE | {"general.architecture": "mamba"}),
        "architecture 'mamba' is not supported",
    ),
    "no architecture": (
        gguf_bytes({key: value for key, value in SHAPE.items() if key != "general.architecture"}),
        "architecture None is not supported",
    ),
    "no number of layers": (
        gguf_bytes({key: value for key, value in SHAPE.items() if key != "llama.block_count"}),
        "lacks llama.block_count; convert",
    ),
    "a tensor type that is not supported": (
        gguf_bytes(tensors=[*small_tensors(), ("blk.0.extra", (256,), Q4_K, bytes(144))]),
        "tensor 'blk.0.extra' is stored as Q4_K, which is not supported; use a file in F32",
    ),
    "a missing tensor": (_without("blk.0.attn_v.weight"), "v_proj.weight' is missing; download or convert"),
    "a missing embedding": (_without("token_embd.weight"), "token_embd.weight is missing"),
    "a tensor that nothing uses": (
        gguf_bytes(tensors=[*small_tensors(), ("blk.0.ffn_gate_shexp.weight", (32,), F32, bytes(128))]),
        "'blk.0.ffn_gate_shexp.weight' belongs to no part of this architecture",
    ),
    "another hidden size": (gguf_bytes(SHAPE | {"llama.embedding_length": 64}), r"has shape \[4, 32\] where"),
    "4,000,000,000 layers": (gguf_bytes(SHAPE | {"llama.block_count": 4 * 10**9}), "layers.1.* is missing"),
    "heads that do not divide": (gguf_bytes(SHAPE | {"llama.attention.head_count_kv": 5}), "make no model"),
    "no heads": (gguf_bytes(SHAPE | {"llama.attention.head_count": 0}), "make no model"),
    "an endless context": (
        gguf_bytes(SHAPE | {"llama.context_length": struct.pack("<If", 6, float("inf"))}),
        "does not say the model's shape",
    ),
    "a stretched context": (
        gguf_bytes(SHAPE | {"llama.rope.scaling.type": "su"}),
        "rope scaling 'su' is not supported",
    ),
}


@pytest.mark.parametrize(("content", "wanted"), [pytest.param(*case, id=name) for name, case in GGUF.items()])
def test_a_gguf_file_that_cannot_run(content: bytes, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=wanted) as caught:
        load(path, Shard(), "auto", None)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def _config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(CONFIG | changes)) and None


def _weights(content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        _config()(folder)
        (folder / "model.safetensors").write_bytes(content)

    return write


def _index(content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        _config()(folder)
        (folder / "model.safetensors.index.json").write_text(content)

    return write


def _one_tensor(folder: Path) -> None:
    _config()(folder)
    save_file({"model.embed_tokens.weight": torch.zeros(4, 32)}, folder / "model.safetensors")


def _whole_numbers(folder: Path) -> None:
    _config()(folder)
    save_file({"model.embed_tokens.weight": torch.zeros(4, 32, dtype=torch.int8)}, folder / "model.safetensors")


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "an empty folder": (lambda folder: None, "config.json: does not exist; a model folder holds"),
    "a configuration that is no JSON": (
        lambda folder: (folder / "config.json").write_text("{") and None,
        "cannot be read as JSON",
    ),
    "a configuration that is a list": (
        lambda folder: (folder / "config.json").write_text("[]") and None,
        "does not say the model's shape",
    ),
    "another architecture": (_config(architectures=["BertModel"]), "BertModel is not supported; use one of Llama"),
    "words for numbers": (_config(hidden_size="many"), "does not say the model's shape .*many"),
    "an activation of another kind": (_config(hidden_act="gelu"), "hidden_act 'gelu' is not supported"),
    "attention that sees ahead": (
        _config(architectures=["Gemma3ForCausalLM"], use_bidirectional_attention=True),
        "use_bidirectional_attention is not supported; use a causal model",
    ),
    "a kind of layer that there is not": (
        _config(architectures=["MistralForCausalLM"], sliding_window=8, layer_types=["chunked_attention"]),
        "layer_types: 'chunked_attention' is not supported; full_attention, sliding_attention are",
    ),
    "a rotary scaling that changes with the prompt": (
        _config(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
        "rope scaling 'dynamic' is not supported; default, linear",
    ),
    "factors for another number of pairs": (
        _config(
            architectures=["Phi3ForCausalLM"],
            rope_scaling={"type": "su", "short_factor": [1.0], "long_factor": [1.0] * 8},
            original_max_position_embeddings=32,
        ),
        "1 short and 8 long rope factors for 8 pairs",
    ),
    "more experts a token than there are": (
        _config(architectures=["MixtralForCausalLM"], num_local_experts=2, num_experts_per_tok=3),
        "3 of 2 experts of 32 make no mixture",
    ),
    "a window of nothing": (
        _config(architectures=["MistralForCausalLM"], sliding_window=-4),
        "a window of -4 tokens shows nothing",
    ),
    "no weights": (_config(), "holds no .*safetensors; download"),
    "a truncated weights file": (_weights(b"\xff\x00\x00"), "model.safetensors: is corrupt or truncated"),
    "an index that is no JSON": (_index("{"), "index.json: cannot be read"),
    "an index of files that are absent": (_index('{"weight_map": {"a": "b.safetensors"}}'), "lacks b.safetensors"),
    "weights without layers": (_one_tensor, "'model.layers.0.* is missing"),
    "weights in whole numbers": (_whole_numbers, "is stored as torch.int8, which is not supported; use"),
}


@pytest.mark.parametrize(("prepare", "wanted"), [pytest.param(*case, id=name) for name, case in FOLDERS.items()])
def test_a_folder_that_cannot_run(prepare: Callable[[Path], None], wanted: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    with pytest.raises(ModelFileError, match=wanted) as caught:
        load(tmp_path, Shard(), "auto", None)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 7)), min_size=1, max_size=3))
def test_flipped_bits_of_the_header_are_a_model_file_error_or_none(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(WHOLE)
    for at, bit in flips:
        damaged[at] ^= 1 << bit
    path = tmp_path_factory.mktemp("damaged") / "model.gguf"
    path.write_bytes(damaged)
    try:
        load(path, Shard(), "auto", None)
    except ModelFileError as error:
        assert "\n" not in str(error)
