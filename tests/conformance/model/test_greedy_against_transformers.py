"""The real model says what transformers says of the same file."""

from __future__ import annotations

import random

import pytest
import torch
import transformers
from forward_steps import greedy
from model_file import smollm2
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard
from tidegate_engine.server.tokenizer import load_tokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

COUNT = 64
TEXTS = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "def quicksort(items):\n    if len(items) < 2:\n        return items\n    pivot = items[0]\n",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it "
    "was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of "
    "Darkness, it was the spring of hope, it was the winter of despair,",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, ",
)


def _prompts() -> list[list[int]]:
    tokenizer = load_tokenizer(smollm2())
    drawn = random.Random(20)
    made = [[drawn.randrange(3, 49152) for _ in range(length)] for length in (20, 63, 128, 200)]
    return made + [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


def _theirs() -> transformers.LlamaForCausalLM:
    path = str(smollm2())
    config = transformers.LlamaConfig(**load_gguf_checkpoint(path, return_tensors=False)["config"])
    network = transformers.LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=network, torch_dtype=torch.float32)
    network.load_state_dict(tensors["tensors"], strict=False)  # the head is not in the file: it is the embedding
    network.tie_weights()
    return network.eval()


@pytest.mark.model
def test_64_greedy_tokens_of_8_prompts_equal_those_of_transformers() -> None:
    prompts = _prompts()
    ours = greedy(load(smollm2(), Shard(), "float32", 512), prompts, COUNT)
    theirs = _theirs()
    for prompt, answer in zip(prompts, ours, strict=True):
        # Every token of ours must be transformers' best after the same tokens: then, by induction from the first, its
        # own greedy run says the same; and all positions take one pass of it instead of 64.
        with torch.inference_mode():
            logits = theirs(torch.tensor([prompt + answer[:-1]]), logits_to_keep=COUNT).logits[0]
        best = logits.topk(2).values
        assert logits.argmax(dim=-1).tolist() == answer, f"smallest gap {(best[:, 0] - best[:, 1]).min()}"
