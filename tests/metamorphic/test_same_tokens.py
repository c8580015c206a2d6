"""The same greedy tokens in float32, however the work is cut: the real model, and no other reference than itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from model_file import smollm2
from runtime_process import RuntimeProcess
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
from tidegate_engine.runtime.settings import BLOCK_SIZE, parse_settings
from tidegate_engine.server.tokenizer import load_tokenizer

pytestmark = pytest.mark.model

GREEDY = SamplingParams(max_tokens=16, temperature=0.0)
SAMPLED = SamplingParams(max_tokens=12, temperature=0.8, top_p=0.95, top_k=200, presence_penalty=0.3, seed=11)
TEXTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived a fisherman who",
    "The three primary colours are red,",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    "To make a good cup of tea, first boil the water. Then put one spoon of tea leaves into the pot for every guest, "
    "and one more for the pot itself. Pour the water over the leaves, wait for four minutes, and",
    "Ein kleiner Hund lief über die Straße, und",
)


@pytest.fixture(scope="module")
def model() -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    # Two threads that wait for each other on a busy machine are many times slower than one.
    torch.set_num_threads(1)
    yield load(smollm2(), Shard(), "float32", 2048)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = load_tokenizer(smollm2())
    return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


def engine(
    model: LoadedModel,
    blocks: int = 128,
    block_size: int = BLOCK_SIZE,
    budget: int = 512,
    slots: int = 8,
    prefix_caching: bool = False,
) -> Engine:
    config = model.config
    kv = KVCache.allocate(
        blocks, block_size, config.num_layers, model.kv_heads, config.head_dim, model.dtype, model.device
    )
    sampler = Sampler()
    followers = Followers(parse_settings(["--model", "model", "--socket-fd", "-1"]))
    ranks = Ranks(Runner(model, kv), sampler, followers)
    limits = Limits(2048, budget, slots, prefix_caching)
    return Engine(BlockPool(blocks, block_size, b"key"), limits, config.vocab_size, ranks, sampler)


def answers(
    under_test: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams = GREEDY, first_id: int = 0
) -> tuple[list[list[int]], list[int]]:
    """All at once, to their ends: tokens, and prompt tokens found in the cache. Blocks are all free at the end."""
    for id, prompt in enumerate(prompts, first_id):
        under_test.submit(Submit(id, list(prompt), replace(params, choice=id - first_id), 0.0))
    tokens: list[list[int]] = [[] for _ in prompts]
    cached = [0 for _ in prompts]
    while under_test.has_work:
        for output in under_test.step():
            tokens[output.id - first_id] += output.tokens
            cached[output.id - first_id] += output.cached_tokens
        under_test.scheduler.check_integrity()
    assert under_test.stats().kv_blocks_used == 0
    return tokens, cached


@pytest.fixture(scope="module")
def alone(model: LoadedModel, prompts: list[list[int]]) -> list[list[int]]:
    """Every prompt by itself, in one chunk, with an empty cache: what all others must say too."""
    under_test = engine(model)
    return [answers(under_test, [prompt], first_id=id)[0][0] for id, prompt in enumerate(prompts)]


def test_the_model_has_something_to_say(alone: list[list[int]]) -> None:
    assert [len(answer) for answer in alone] == [GREEDY.max_tokens] * len(TEXTS)
    paris = load_tokenizer(smollm2()).encode(" Paris", add_special_tokens=False)
    assert alone[0][: len(paris)] == paris


def test_eight_at_once(model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
    assert answers(engine(model), prompts)[0] == alone


def test_in_chunks_of_eight_tokens(model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
    under_test = engine(model, budget=8)
    assert answers(under_test, prompts)[0] == alone
    assert under_test.stats().steps > sum(len(prompt) for prompt in prompts) / 8


def test_with_the_beginning_in_the_cache(model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
    under_test = engine(model, prefix_caching=True)
    assert answers(under_test, prompts)[0] == alone
    tokens, cached = answers(under_test, prompts, first_id=100)
    assert tokens == alone
    assert cached == [(len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE for prompt in prompts]
    assert sum(cached) > 0


def test_with_a_whole_conversation_in_the_cache(
    model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    """The next turn finds the answer of the turn before: its blocks were filled by decoding, not by a prompt."""
    turns = [prompt + answer[:12] for prompt, answer in zip(prompts, alone, strict=True)]
    under_test = engine(model, prefix_caching=True)
    answers(under_test, prompts)
    tokens, cached = answers(under_test, turns, replace(GREEDY, max_tokens=4), first_id=100)
    assert tokens == [answer[12:] for answer in alone]
    assert sum(cached) > sum(len(prompt) // BLOCK_SIZE * BLOCK_SIZE for prompt in prompts)


def test_after_preemption(model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
    under_test = engine(model, blocks=24, block_size=4, prefix_caching=True)
    assert answers(under_test, prompts)[0] == alone
    assert under_test.stats().preemptions > 0


def test_while_others_go_away(model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
    under_test = engine(model, blocks=32, prefix_caching=True)
    for id, prompt in enumerate(prompts):
        under_test.submit(Submit(id, prompt, GREEDY, 0.0))
    tokens: list[list[int]] = [[] for _ in prompts]
    gone = (1, 4, 6)
    for step in range(1000):
        if step % 3 == 2 and step // 3 < len(gone):
            under_test.scheduler.abort([gone[step // 3]])
        if not under_test.has_work:
            break
        for output in under_test.step():
            tokens[output.id] += output.tokens
    for id, answer in enumerate(alone):
        assert tokens[id] == (answer[: len(tokens[id])] if id in gone else answer)
    assert all(len(tokens[id]) < GREEDY.max_tokens for id in gone)


def test_drawn_tokens_too_do_not_depend_on_batch_chunk_or_preemption(
    model: LoadedModel, prompts: list[list[int]]
) -> None:
    prompts = prompts[:4]
    wide, _ = answers(engine(model), prompts, SAMPLED)
    narrow = engine(model, blocks=18, block_size=2, budget=8, prefix_caching=True)
    assert answers(narrow, prompts, SAMPLED)[0] == wide
    assert narrow.stats().preemptions > 0
    assert len({tuple(answer) for answer in wide}) == len(prompts)


@pytest.mark.parametrize("ranks", [1, 2, 3], ids=["one rank", "two ranks", "three ranks"])
def test_started_anew_in_processes_of_its_own(ranks: int, prompts: list[list[int]], alone: list[list[int]]) -> None:
    """With two ranks one holds 6 of the 9 query heads, the other 3."""
    flags = ["--dtype", "float32", "--max-model-len", "256", "--kv-cache-memory", str(96 * 2**20)]
    with RuntimeProcess(smollm2(), *flags, "--threads", "1", "--tensor-parallel", str(ranks)) as runtime:
        runtime.ready()
        assert runtime.answers(prompts, GREEDY) == alone
        assert runtime.quit() == 0
