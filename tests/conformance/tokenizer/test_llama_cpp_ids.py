"""Prompt ids are llama.cpp's, which is what the model's authors checked their GGUF file with."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from model_file import smollm2
from random_texts import random_texts
from tidegate_engine.server.tokenizer import Tokenizer, load_tokenizer

RECORD = Path(__file__).parent / "llama_cpp_ids.json.gz"

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(smollm2())


def test_three_thousand_random_texts_have_the_ids_that_llama_cpp_gives_them(tokenizer: Tokenizer) -> None:
    record = json.loads(gzip.decompress(RECORD.read_bytes()))
    texts = list(random_texts(3000, record["seed"]))
    assert len(record["ids"]) == len(texts) == 3000
    wrong = [
        (text, theirs, ours)
        for text, theirs in zip(texts, record["ids"], strict=True)
        if (ours := tokenizer.encode(text, add_special_tokens=False)) != theirs
    ]
    assert not wrong, f"{len(wrong)} of 3000 differ; the first: {wrong[0]}"


def test_ids_decode_to_the_text_they_came_from(tokenizer: Tokenizer) -> None:
    special = {name for name, raw in zip(tokenizer.names, tokenizer.token_bytes, strict=True) if not raw}
    for text in random_texts(500, seed=4):
        if not any(name in text for name in special):
            assert tokenizer.text_of(tokenizer.encode(text, add_special_tokens=True)) == text


def test_the_end_of_a_turn_ends_an_answer(tokenizer: Tokenizer) -> None:
    assert [tokenizer.names[index] for index in tokenizer.eos_ids] == ["<|im_end|>"]
    assert tokenizer.text_of(tokenizer.eos_ids) == ""
