"""Every architecture computes what transformers computes from the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forward_steps import Sequences
from small_models import LONGROPE, NAMES, save_small_model
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


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_through_chunks_and_decoding_in_one_step(name: str, tmp_path: Path) -> None:
    theirs = save_small_model(name, tmp_path)
    sequences = Sequences(load(tmp_path, Shard(), "float32", None), PROMPTS[1:], 110)
    assert sequences.step([20, 50], sampled=[]).shape == (0, theirs.config.vocab_size)
    found = [[sequences.step([7, 40], sampled=[1])[0]]]
    sequences.tokens[1].append(int(found[0][0].argmax()))
    found.insert(0, [])
    new = [10, 1]
    for _ in range(8):
        for row, (tokens, logits) in enumerate(zip(sequences.tokens, sequences.step(new), strict=True)):
            tokens.append(int(logits.argmax()))
            found[row].append(logits)
        new = [1, 1]
    for tokens, ours in zip(sequences.tokens, found, strict=True):
        with torch.inference_mode():
            wanted = theirs(torch.tensor([tokens[:-1]])).logits[0, -len(ours) :]
        torch.testing.assert_close(torch.stack(ours), wanted, atol=1e-4, rtol=1e-4)
        # By induction from the first, transformers' own greedy run says the same.
        assert wanted.argmax(dim=-1).tolist() == tokens[-len(ours) :]


@pytest.mark.parametrize(
    ("longest", "prompt"),
    [
        pytest.param(64, PROMPTS[1], id="short factors up to the old context"),
        pytest.param(None, PROMPTS[2], id="long factors beyond it"),
    ],
)
def test_longrope_by_the_longest_context_that_is_asked_for(
    longest: int | None, prompt: list[int], tmp_path: Path
) -> None:
    theirs = save_small_model(LONGROPE, tmp_path)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([prompt])).logits[0, -1:]
    found = Sequences(load(tmp_path, Shard(), "float32", longest), [prompt], 100).step()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


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
