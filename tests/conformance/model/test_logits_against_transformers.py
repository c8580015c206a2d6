"""Every architecture computes what transformers computes from the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forward_steps import Sequences
from small_models import NAMES, save_small_model
from tidegate_engine.files import ModelFileError
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard

PROMPTS = [
    [int(x) for x in torch.randint(0, 100, (n,), generator=torch.Generator().manual_seed(n))] for n in (1, 37, 90)
]


@pytest.mark.parametrize("name", NAMES)
def test_logits_in_float32(name: str, tmp_path: Path) -> None:
    theirs = save_small_model(name, tmp_path)
    sequences = Sequences(load(tmp_path, Shard(), "float32", None), PROMPTS, 100)
    with torch.inference_mode():
        wanted = [theirs(torch.tensor([prompt])).logits[0, -1] for prompt in PROMPTS]
    torch.testing.assert_close(sequences.step(), torch.stack(wanted), atol=1e-4, rtol=1e-4)


def test_chunks_and_decoding_in_one_step_give_the_logits_of_whole_prompts(tmp_path: Path) -> None:
    theirs = save_small_model("Llama", tmp_path)
    sequences = Sequences(load(tmp_path, Shard(), "float32", None), PROMPTS[1:], 100)
    assert sequences.step([20, 50], sampled=[]).shape == (0, 101)
    assert sequences.step([7, 39], sampled=[1]).shape == (1, 101)
    sequences.step([9, 1])
    sequences.tokens[1].append(7)
    found = sequences.step([1, 1])
    with torch.inference_mode():
        wanted = [theirs(torch.tensor([tokens])).logits[0, -1] for tokens in sequences.tokens]
    torch.testing.assert_close(found, torch.stack(wanted), atol=1e-4, rtol=1e-4)


def test_weights_in_several_files(tmp_path: Path) -> None:
    theirs = save_small_model("Qwen2", tmp_path, shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    with torch.inference_mode():
        wanted = theirs(torch.tensor([PROMPTS[1]])).logits[0, -1:]
    found = Sequences(load(tmp_path, Shard(), "float32", None), PROMPTS[1:2], 100).step()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("bfloat16", 0.1), ("float16", 0.01)], ids=["in bfloat16", "in float16"]
)
def test_narrow_numbers_stay_near(dtype: str, tolerance: float, tmp_path: Path) -> None:
    theirs = save_small_model("Llama", tmp_path)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([PROMPTS[1]])).logits[0, -1:]
    found = Sequences(load(tmp_path, Shard(), dtype, None), PROMPTS[1:2], 100).step()
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() < tolerance * wanted.abs().max()


def test_a_length_that_the_model_was_not_made_for_is_refused(tmp_path: Path) -> None:
    save_small_model("Llama", tmp_path)
    with pytest.raises(ModelFileError, match=r"maxModelLen 300: .* was made for 256 tokens; ask for that or fewer"):
        load(tmp_path, Shard(), "float32", 300)
    assert load(tmp_path, Shard(), "float32", 64).config.max_position == 64
