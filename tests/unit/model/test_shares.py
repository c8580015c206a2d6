"""Which heads each rank has."""

from __future__ import annotations

import pytest
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.shares import share


def config(heads: int, kv_heads: int) -> ModelConfig:
    return ModelConfig("llama", 1, 64, 100, heads, kv_heads, 8, 101, 64, 10_000.0, 1e-5, True)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "queries"),
    [
        pytest.param(9, 3, 2, [6, 3], id="SmolLM2 on two ranks"),
        pytest.param(9, 3, 4, [2, 1, 3, 3], id="one key head on two ranks"),
        pytest.param(9, 3, 6, [2, 1, 2, 1, 2, 1], id="each key head on two"),
        pytest.param(9, 3, 9, [1] * 9, id="as many ranks as query heads"),
        pytest.param(8, 1, 3, [3, 3, 2], id="one key head for all"),
    ],
)
def test_query_heads_of_ranks(heads: int, kv_heads: int, ranks: int, queries: list[int]) -> None:
    found = [share(config(heads, kv_heads), Shard(rank, ranks)) for rank in range(ranks)]
    assert [shares.query_heads for shares in found] == queries


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 4])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_every_row_lies_on_one_rank_and_beside_its_key_head(kv_heads: int, group: int) -> None:
    shape = config(kv_heads * group, kv_heads)
    for ranks in range(1, shape.num_heads + 1):
        found = [share(shape, Shard(rank, ranks)) for rank in range(ranks)]
        for rows, total in (("queries", shape.num_heads * 8), ("mlp", 100), ("vocabulary", 101)):
            parts = [getattr(shares, rows) for shares in found]
            assert [row for part in parts for row in range(part.start, part.stop)] == list(range(total))
        for shares in found:
            wanted = {query // group for query in range(shares.queries.start // 8, shares.queries.stop // 8)}
            assert wanted == set(range(shares.keys.start // 8, shares.keys.stop // 8))
            # Kernels take it that each of a rank's key heads has as many query heads as the others.
            assert shares.query_heads % shares.kv_heads == 0
