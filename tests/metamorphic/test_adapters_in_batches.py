"""A request's adapter, and nobody else's, decides its tokens: in batches, chunks, the prefix cache and preemption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_adapters import save_small_adapter
from small_models import save_small_model
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Limits
from tidegate_engine.link.messages import Submit
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.ranks import Ranks
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import parse_settings

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
PROMPT = [(7 * at) % 101 for at in range(30)]
ADAPTERS = (0, 1, 2, 1, 0, 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("adapters")
    save_small_model("Llama", folder / "base")
    modules = ("q_proj", "v_proj", "down_proj")
    adapters = [save_small_adapter(folder / "base", folder / str(seed), seed, modules) for seed in (1, 2)]
    return load(folder / "base", Shard(), "float32", None, adapters=adapters)


def answers(
    model: LoadedModel, adapters: Sequence[int], blocks: int = 64, budget: int = 256, caching: bool = False
) -> tuple[list[list[int]], Engine]:
    """All at once with the same prompt, to their ends."""
    config = model.config
    kv = KVCache.allocate(blocks, 4, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device)
    sampler = Sampler()
    ranks = Ranks(Runner(model, kv), sampler, Followers(parse_settings(["--model", "m", "--socket-fd", "-1"])))
    limits = Limits(256, budget, 8, caching)
    engine = Engine(BlockPool(blocks, 4, b"key"), limits, config.vocab_size, ranks, sampler)
    tokens: list[list[int]] = [[] for _ in adapters]
    for id, adapter in enumerate(adapters):
        engine.submit(Submit(id, PROMPT, replace(GREEDY, adapter=adapter), 0.0))
    while engine.has_work:
        for output in engine.step():
            tokens[output.id] += output.tokens
        engine.scheduler.check_integrity()
    return tokens, engine


@pytest.fixture(scope="module")
def alone(model: LoadedModel) -> list[list[int]]:
    found = [answers(model, [adapter])[0][0] for adapter in (0, 1, 2)]
    assert found[0] != found[1] != found[2] != found[0]
    return [found[adapter] for adapter in ADAPTERS]


def test_all_in_one_batch(model: LoadedModel, alone: list[list[int]]) -> None:
    assert answers(model, ADAPTERS)[0] == alone


def test_in_chunks_of_five_tokens(model: LoadedModel, alone: list[list[int]]) -> None:
    assert answers(model, ADAPTERS, budget=5)[0] == alone


def test_one_prompt_in_the_cache_by_adapter(model: LoadedModel, alone: list[list[int]]) -> None:
    found, engine = answers(model, ADAPTERS, caching=True, budget=30)
    assert found == alone
    assert engine.stats().cached_tokens == 3 * 28  # the second of each finds what the first has computed


def test_after_preemption(model: LoadedModel, alone: list[list[int]]) -> None:
    found, engine = answers(model, ADAPTERS, blocks=30, caching=True)
    assert found == alone
    assert engine.stats().preemptions > 0
