"""Every GGUF architecture, as llama.cpp's converter writes it, computes what transformers computes of the original."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forward_steps import Sequences
from gguf_models import save_small_gguf
from small_models import LONGROPE
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard

PROMPT = [int(x) for x in torch.randint(0, 100, (90,), generator=torch.Generator().manual_seed(9))]
NAMES = (
    "Llama",
    "Llama with biases",
    "SmolLM3",
    "Qwen2",
    "Qwen2 with YaRN",
    "Qwen3",
    "Mixtral",
    "Qwen3-MoE",
    "Gemma 2 of its usual scale",
    "Gemma 3 of its usual scale",
    "Gemma 3 with a stretched global context",
    "Phi-3",
    "Phi-3 with a window",
    "Phi-3 rotated in part",
    LONGROPE,
)


@pytest.mark.parametrize("name", NAMES)
def test_logits_in_float32(name: str, tmp_path: Path) -> None:
    theirs, path = save_small_gguf(name, tmp_path)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([PROMPT])).logits[0, -1:]
    found = Sequences(load(path, Shard(), "float32", None), [PROMPT], 100).step()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
