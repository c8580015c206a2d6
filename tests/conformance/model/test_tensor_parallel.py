"""A model over several ranks computes what it computes on one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rank_processes import two_steps, two_steps_over
from small_models import save_small_model
from tidegate_engine.files import ModelFileError
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard


@pytest.mark.parametrize(
    ("name", "size", "kv_heads"),
    [
        pytest.param("Llama with 9 heads over 3", 2, [2, 1], id="9 heads over 3, tied, on 2 ranks: 6 and 3"),
        pytest.param("Llama with biases", 2, [2, 1], id="biases are added once"),
        pytest.param("Gemma 2", 2, [2, 1], id="Gemma 2, normalised after its parts are added up"),
        pytest.param("Phi-3 rotated in part", 3, [1, 1, 1], id="Phi-3, whose file holds fused projections"),
        pytest.param("Mixtral", 2, [2, 1], id="Mixtral, every expert cut in columns"),
        pytest.param("Qwen3-MoE", 4, [1] * 4, id="Qwen3-MoE on more ranks than key heads: 1, 1, 2 and 2 query heads"),
        pytest.param("Llama with 9 heads over 3", 6, [1] * 6, id="9 heads over 3 on 6 ranks: 2 and 1 of each"),
        pytest.param("Llama with 9 heads over 3", 9, [1] * 9, id="9 heads over 3 on 9 ranks: one each"),
        pytest.param("Qwen3", 3, [1, 1, 1], id="Qwen3 on 3 ranks, a vocabulary of 101"),
    ],
)
def test_logits_equal_those_of_one_rank(name: str, size: int, kv_heads: list[int], tmp_path: Path) -> None:
    save_small_model(name, tmp_path)
    wanted, _ = two_steps(tmp_path, Shard())
    found = two_steps_over(size, tmp_path)
    assert [heads for _, heads in found] == kv_heads
    for logits, _ in found:
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)


def test_more_ranks_than_query_heads_are_refused(tmp_path: Path) -> None:
    save_small_model("Llama", tmp_path)
    with pytest.raises(ModelFileError, match=r"tensorParallel 7: the model has 6 query heads.*use 6 or fewer"):
        load(tmp_path, Shard(0, 7), "float32", None)
