"""What prompts tell (how likely their own tokens were, their embeddings) against transformers, however work is cut."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_models import save_small_model
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Limits
from tidegate_engine.link.messages import Abort, Output, Submit, TokenLogprobs
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.ranks import Ranks
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import parse_settings

BLOCK = 4
SCORE = SamplingParams(max_tokens=3, temperature=0.0, prompt_logprobs=3)
EMBED = SamplingParams(max_tokens=1, temperature=0.0, embed=True)
SAY = SamplingParams(max_tokens=9, temperature=0.0)
PROMPT = [7, 50, 3, 99, 12, 12, 64, 31, 5, 88, 42]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoadedModel, torch.nn.Module]]:
    folder: Path = tmp_path_factory.mktemp("small")
    theirs = save_small_model("Llama", folder)
    yield load(folder, Shard(), "float32", None), theirs


def engine(model: LoadedModel, blocks: int = 64, budget: int = 64, caching: bool = True) -> Engine:
    config = model.config
    kv = KVCache.allocate(
        blocks, BLOCK, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device
    )
    sampler = Sampler()
    ranks = Ranks(Runner(model, kv), sampler, Followers(parse_settings(["--model", "model", "--socket-fd", "-1"])))
    limits = Limits(config.max_position, budget, 8, caching)
    return Engine(BlockPool(blocks, BLOCK, b"key"), limits, config.vocab_size, ranks, sampler)


def finish(under_test: Engine) -> dict[int, list[Output]]:
    found: dict[int, list[Output]] = {}
    while under_test.has_work:
        for output in under_test.step():
            found.setdefault(output.id, []).append(output)
    assert under_test.stats().kv_blocks_used == 0
    return found


def expected(theirs: torch.nn.Module, prompt: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log probabilities [T, V] after each token, and the last token's final hidden state at length 1."""
    with torch.inference_mode():
        said = theirs(torch.tensor([prompt]), output_hidden_states=True)
    state = said.hidden_states[-1][0, -1]
    return torch.log_softmax(said.logits[0], dim=-1), state / state.norm()


def check_scores(theirs: torch.nn.Module, prompt: list[int], scores: list[TokenLogprobs] | None) -> None:
    table, _ = expected(theirs, prompt)
    assert scores is not None
    assert len(scores) == len(prompt) - 1
    for position, score in enumerate(scores):
        assert score.chosen == pytest.approx(float(table[position, prompt[position + 1]]), abs=1e-4)
        likeliest = table[position].topk(3)
        assert score.top_ids == likeliest.indices.tolist()
        assert score.top == pytest.approx(likeliest.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("budget", [64, 4, 1], ids=["in one chunk", "in chunks of four", "token by token"])
def test_a_prompts_own_tokens_are_as_likely_as_transformers_says(
    models: tuple[LoadedModel, torch.nn.Module], budget: int
) -> None:
    ours, theirs = models
    under_test = engine(ours, budget=budget)
    under_test.submit(Submit(1, PROMPT, SCORE, 0.0))
    outputs = finish(under_test)[1]
    check_scores(theirs, PROMPT, outputs[0].prompt_logprobs)
    assert [output.prompt_logprobs for output in outputs[1:]] == [None, None]


def test_a_cached_prompt_is_computed_again_where_its_probabilities_are_wanted(
    models: tuple[LoadedModel, torch.nn.Module],
) -> None:
    ours, theirs = models
    under_test = engine(ours)
    for id in (1, 2):
        under_test.submit(Submit(id, PROMPT, SCORE, 0.0))
        check_scores(theirs, PROMPT, finish(under_test)[id][0].prompt_logprobs)
    under_test.submit(Submit(3, PROMPT, SAY, 0.0))
    assert finish(under_test)[3][0].cached_tokens == 8, "what was computed for scores is shared all the same"


def test_scores_survive_preemption_and_neighbours(models: tuple[LoadedModel, torch.nn.Module]) -> None:
    """13 blocks of 4 hold two requests of up to 30 tokens each only for a while."""
    ours, theirs = models
    under_test = engine(ours, blocks=13, budget=5)
    prompts = [[(number * 17 + at * 29) % 101 for at in range(18)] for number in range(4)]
    for id, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=12, temperature=0.0, prompt_logprobs=3 if id % 2 else None)
        under_test.submit(Submit(id, prompt, params, 0.0))
    outputs = finish(under_test)
    assert under_test.stats().preemptions > 0
    assert outputs[0][0].prompt_logprobs is None
    for id in (1, 3):
        check_scores(theirs, prompts[id], outputs[id][0].prompt_logprobs)


@pytest.mark.parametrize("cached", [False, True], ids=["an empty cache", "a cached beginning"])
@pytest.mark.parametrize("budget", [64, 3], ids=["in one chunk", "in chunks"])
def test_an_embedding_is_the_last_tokens_final_state_at_length_one(
    models: tuple[LoadedModel, torch.nn.Module], budget: int, cached: bool
) -> None:
    ours, theirs = models
    under_test = engine(ours, budget=budget)
    if cached:
        under_test.submit(Submit(0, PROMPT[:9], SAY, 0.0))
        finish(under_test)
    before = under_test.stats().generated_tokens
    for id in range(1, 4):  # side by side with an answer, a score and another embedding
        under_test.submit(Submit(id, PROMPT[: 8 + id], (EMBED, SCORE, EMBED)[id - 1], 0.0))
    outputs = finish(under_test)
    for id in (1, 3):
        (output,) = outputs[id]
        assert output.embedding is not None
        vector = struct.unpack(f"<{ours.config.hidden_size}f", output.embedding)
        assert math.isclose(math.hypot(*vector), 1.0, rel_tol=1e-5)
        assert list(vector) == pytest.approx(expected(theirs, PROMPT[: 8 + id])[1].tolist(), abs=1e-5)
    assert outputs[2][0].embedding is None
    assert under_test.stats().generated_tokens == before + SCORE.max_tokens, "an embedding generates nothing"


def test_events_tell_every_share_of_a_prompt_and_every_preemption(
    models: tuple[LoadedModel, torch.nn.Module],
) -> None:
    under_test = engine(models[0], blocks=8, budget=6, caching=False)
    under_test.submit(Submit(1, PROMPT, SamplingParams(max_tokens=10, temperature=0.0), 0.0))
    under_test.submit(Submit(2, PROMPT, SamplingParams(max_tokens=8, temperature=0.0), 0.0))
    finish(under_test)
    events = under_test.take_events()
    assert [(e.start, e.tokens) for e in events if e.id == 1] == [(0, 6), (6, 5)]
    second = [(e.start, e.tokens) for e in events if e.id == 2]
    assert second.count((0, 0)) == under_test.stats().preemptions > 0
    again = second[second.index((0, 0)) + 1 :]
    assert again[0] == (0, 6), "after it lost its blocks it begins anew"
    assert [e.step for e in events] == sorted(e.step for e in events)
    assert under_test.take_events() == []


def test_what_is_aborted_leaves_no_scores_and_no_events_behind(
    models: tuple[LoadedModel, torch.nn.Module],
) -> None:
    under_test = engine(models[0], budget=4)
    under_test.submit(Submit(1, PROMPT, SCORE, 0.0))
    under_test.step()
    under_test.take_events()
    under_test.abort(Abort([1]))
    assert not under_test.has_work
    under_test.submit(Submit(2, PROMPT, SCORE, 0.0))
    outputs = finish(under_test)
    assert list(outputs) == [2]
    assert {event.id for event in under_test.take_events()} == {2}
