"""The same greedy tokens in float32, however the work is cut: the real model, and no other reference than itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from model_file import smollm2
from runtime_process import RuntimeProcess
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Decoding, Limits
from tidegate_engine.link.messages import StepCost, Submit, TokenLogprobs
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.draft_model import DraftModel
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.prompt_lookup import PromptLookup
from tidegate_engine.runtime.ranks import Ranks
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import BLOCK_SIZE, parse_settings
from tidegate_engine.runtime.speculation import Drafter, Speculation
from tidegate_engine.runtime.speculation_control import SpeculationControl
from tidegate_engine.server.tokenizer import load_tokenizer

pytestmark = pytest.mark.model

GREEDY = SamplingParams(max_tokens=16, temperature=0.0)
SAMPLED = SamplingParams(max_tokens=12, temperature=0.8, top_p=0.95, top_k=200, presence_penalty=0.3, seed=11)
# Equal tokens are asked of sums in another order, which move a logit by 5e-5: of these texts' 16 greedy tokens none is
# less than 0.01 ahead of the next best, and no number drawn falls nearer than 3e-4 to the edge of its token's share.
TEXTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived a fisherman who",
    "The planets, from the Sun outwards, are Mercury, Venus,",
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
    drafter: Callable[[Sampler], Drafter] | None = None,
) -> Engine:
    config = model.config
    kv = cache(model, blocks, block_size)
    sampler = Sampler()
    followers = Followers(parse_settings(["--model", "model", "--socket-fd", "-1"]))
    ranks = Ranks(Runner(model, kv), sampler, followers)
    limits = Limits(2048, budget, slots, prefix_caching)
    speculation = None if drafter is None else Speculation(drafter(sampler), Always(4))
    return Engine(BlockPool(blocks, block_size, b"key"), limits, config.vocab_size, ranks, sampler, speculation)


def cache(model: LoadedModel, blocks: int, block_size: int) -> KVCache:
    config = model.config
    return KVCache.allocate(
        blocks, block_size, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device
    )


class Always(SpeculationControl):
    """Guesses whatever it costs."""

    def plan(self, ids: Sequence[int], kv_tokens: int, cost: StepCost | None) -> dict[int, int]:
        return dict.fromkeys(ids, 4)


class Mistaken:
    """A drafter whose every third guess is wrong."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._made = 0

    def propose(self, wishes: Sequence[tuple[Decoding, int]]) -> dict[int, list[int]]:
        return {id: [self._spoil(guess) for guess in guesses] for id, guesses in self._drafter.propose(wishes).items()}

    def _spoil(self, guess: int) -> int:
        self._made += 1
        return guess if self._made % 3 else guess + 1

    def forget(self, id: int) -> None:
        self._drafter.forget(id)


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


def itself(model: LoadedModel, mistaken: bool = False) -> Callable[[Sampler], Drafter]:
    """The model as its own draft model, with a cache of its own that is too small for all."""

    def drafter(sampler: Sampler) -> Drafter:
        own = DraftModel(Runner(model, cache(model, 20, 8)), sampler, BlockPool(20, 8, b""), token_budget=40)
        return Mistaken(own) if mistaken else own

    return drafter


SAID = [
    pytest.param(GREEDY, id="greedy"),
    pytest.param(replace(SAMPLED, max_tokens=16), id="drawn, with a penalty"),
    pytest.param(
        replace(GREEDY, frequency_penalty=0.6, repetition_penalty=1.3, logprobs=2), id="greedy, with penalties"
    ),
    pytest.param(
        replace(SAMPLED, temperature=1.0, repetition_penalty=1.1, min_p=0.02, stop_token_ids=(28, 30), min_tokens=9),
        id="drawn, with stops that come too early at first",
    ),
]


@pytest.mark.parametrize("params", SAID)
def test_with_guesses(model: LoadedModel, prompts: list[list[int]], params: SamplingParams) -> None:
    """Looked up, of a model, and of one that is often wrong: the same tokens, as likely as before."""
    prompts = [prompts[index] for index in (2, 5, 6)]
    plain = said_by(engine(model, slots=3), prompts, params)
    counts = []
    for drafter in (lambda _: PromptLookup(), itself(model), itself(model, mistaken=True)):
        under_test = engine(model, slots=3, drafter=drafter)
        said = said_by(under_test, prompts, params)
        assert [[token for token, _ in answer] for answer in said] == [[t for t, _ in answer] for answer in plain]
        # A matrix product of another shape may differ in its last digits.
        assert likelihoods(said) == pytest.approx(likelihoods(plain), abs=1e-3)
        counts.append(under_test.stats().drafts)
    looked_up, own, mistaken = counts
    assert looked_up.draft_tokens > 0
    assert 0 < own.accepted_tokens == own.draft_tokens
    assert 0 < mistaken.accepted_tokens < mistaken.draft_tokens


def likelihoods(said: list[list[tuple[int, TokenLogprobs | None]]]) -> list[float]:
    return [known.chosen for answer in said for _, known in answer if known is not None]


def said_by(
    under_test: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> list[list[tuple[int, TokenLogprobs | None]]]:
    for id, prompt in enumerate(prompts):
        under_test.submit(Submit(id, list(prompt), replace(params, choice=id), 0.0))
    said: list[list[tuple[int, TokenLogprobs | None]]] = [[] for _ in prompts]
    while under_test.has_work:
        for output in under_test.step():
            known = output.logprobs or [None] * len(output.tokens)
            said[output.id] += zip(output.tokens, known, strict=True)
        under_test.scheduler.check_integrity()
    assert under_test.stats().kv_blocks_used == 0
    return said


def test_with_guesses_in_chunks_with_a_cache_and_after_preemption(
    model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    under_test = engine(
        model, blocks=24, block_size=4, budget=24, prefix_caching=True, drafter=itself(model, mistaken=True)
    )
    assert answers(under_test, prompts)[0] == alone
    stats = under_test.stats()
    assert stats.preemptions > 0
    assert 0 < stats.drafts.accepted_tokens < stats.drafts.draft_tokens


@pytest.mark.parametrize("ranks", [1, 2], ids=["one rank", "two ranks"])
def test_with_guesses_in_processes_of_its_own(ranks: int, prompts: list[list[int]], alone: list[list[int]]) -> None:
    flags = ["--dtype", "float32", "--max-model-len", "256", "--kv-cache-memory", str(96 * 2**20)]
    flags += ["--speculative", "draft", "--draft-model", str(smollm2()), "--tensor-parallel", str(ranks)]
    with RuntimeProcess(smollm2(), *flags, "--threads", "1") as runtime:
        runtime.ready()
        assert runtime.answers(prompts, GREEDY) == alone
        assert runtime.outputs().stats.drafts.accepted_tokens > 0
        assert runtime.quit() == 0


@pytest.mark.parametrize("ranks", [1, 2, 3], ids=["one rank", "two ranks", "three ranks"])
def test_started_anew_in_processes_of_its_own(ranks: int, prompts: list[list[int]], alone: list[list[int]]) -> None:
    """With two ranks one holds 6 of the 9 query heads, the other 3."""
    flags = ["--dtype", "float32", "--max-model-len", "256", "--kv-cache-memory", str(96 * 2**20)]
    with RuntimeProcess(smollm2(), *flags, "--threads", "1", "--tensor-parallel", str(ranks)) as runtime:
        runtime.ready()
        assert runtime.answers(prompts, GREEDY) == alone
        assert runtime.quit() == 0
