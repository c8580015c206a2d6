"""An adapter beside the weights computes what a model with the adapter merged into its weights computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forward_steps import Sequences
from rank_processes import two_steps, two_steps_over
from small_adapters import RANK, save_merged, save_small_adapter
from small_models import save_small_model
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FUSED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
PROMPTS = [[5, 17, 99, 3, 42], [64], [7] * 20, [5, 17, 99, 3, 42]]


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        pytest.param("Llama", ALL, id="Llama, all matrices"),
        pytest.param("Llama with biases", ("q_proj", "v_proj"), id="queries and values alone, beside biases"),
        pytest.param("Gemma 2", ALL, id="Gemma 2"),
        pytest.param("Qwen3-MoE", ("q_proj", "o_proj"), id="attention in a mixture of experts"),
        pytest.param("Phi-3", FUSED, id="Phi-3, whose matrices are fused"),
        pytest.param("Phi-3 rotated in part", FUSED, id="Phi-3, whose rows come in another order"),
    ],
)
def test_several_in_one_step_equal_models_they_are_merged_into(
    name: str, modules: tuple[str, ...], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    save_small_model(name, base)
    adapters = [save_small_adapter(base, tmp_path / f"a{seed}", seed, modules) for seed in (1, 2)]
    merged = [save_merged(base, adapter, tmp_path / f"m{index}") for index, adapter in enumerate(adapters)]
    model = load(base, Shard(), "float32", None, adapters=adapters)
    used = [1, 0, 2, 2]
    found = Sequences(model, PROMPTS, 32, adapters=used).step()
    alone = {0: base, 1: merged[0], 2: merged[1]}
    for row, (prompt, adapter) in enumerate(zip(PROMPTS, used, strict=True)):
        wanted = Sequences(load(alone[adapter], Shard(), "float32", None), [prompt], 32).step()
        torch.testing.assert_close(found[row : row + 1], wanted, atol=1e-4, rtol=1e-4)
    assert (found[0] - found[3]).abs().max() > 0.1, "the adapters change nothing"


def test_the_scale_of_rank_stabilised_adapters_is_over_the_root_of_the_rank(tmp_path: Path) -> None:
    base = tmp_path / "base"
    save_small_model("Llama", base)
    adapter = save_small_adapter(base, tmp_path / "adapter", 1, ALL, use_rslora=True)
    merged = save_merged(base, adapter, tmp_path / "merged", scale=6.0 / RANK**0.5)
    found = Sequences(load(base, Shard(), "float32", None, adapters=[adapter]), PROMPTS[:1], 32, adapters=[1]).step()
    wanted = Sequences(load(merged, Shard(), "float32", None), PROMPTS[:1], 32).step()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_beside_weights_that_are_quantized(tmp_path: Path) -> None:
    """What an adapter adds is the same, whatever the weights are kept in."""
    base = tmp_path / "base"
    save_small_model("Llama", base)
    adapter = save_small_adapter(base, tmp_path / "adapter", 1, ("down_proj",))
    narrow = load(base, Shard(), "float32", None, quantization="int8", adapters=[adapter])
    wide = load(base, Shard(), "float32", None, adapters=[adapter])
    found = Sequences(narrow, PROMPTS[:1], 32, adapters=[1]).step()
    wanted = Sequences(wide, PROMPTS[:1], 32, adapters=[1]).step()
    without = Sequences(wide, PROMPTS[:1], 32).step()
    assert (found - wanted).abs().max() < 0.2 * (wanted - without).abs().max()


@pytest.mark.parametrize("size", [2, 3, 6], ids=["two ranks", "three ranks", "six ranks"])
def test_over_ranks(size: int, tmp_path: Path) -> None:
    base = tmp_path / "base"
    save_small_model("Llama", base)
    adapter = save_small_adapter(base, tmp_path / "adapter", 3, ALL)
    wanted, _ = two_steps(base, Shard(), adapter)
    plain, _ = two_steps(base, Shard())
    assert (wanted - plain).abs().max() > 0.1
    for logits, _ in two_steps_over(size, base, adapter):
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
