"""Answers held to grammars are the same however the work is cut and whoever shares it; a model of random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from llguidance import LLMatcher
from runtime_process import RuntimeProcess
from small_models import save_small_model
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.scheduler import Limits
from tidegate_engine.link.messages import Abort, Submit, Vocabulary
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.constraints import Constraint
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.matching import MatcherFactory
from tidegate_engine.runtime.ranks import Ranks
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import parse_settings

SIZE, END = 101, 100
CHARACTERS = [*range(32, 127), *b"\n\xc3\xa9\xc2\xa0"]
VOCABULARY = Vocabulary([*(bytes([one]) for one in CHARACTERS), b"<end>"], [END], [END])
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "yes", 12]}, "b": {"type": "string", "maxLength": 5}, "c": {"type": "boolean"}},
    "required": ["a", "b", "c"],
    "additionalProperties": False,
}
GRAMMARS = [
    LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA), overrides={"whitespace_flexible": False}),
    LLMatcher.grammar_from_regex("[a-d]{5,20}(, [0-9]{2,6}é?){1,3}"),
    None,
    LLMatcher.grammar_from_regex("(yes|no|perhaps), [A-Z]{3,9}"),
]
PARAMS = [
    SamplingParams(40, seed=3, stop_token_ids=(END,), grammar=grammar, presence_penalty=0.2, choice=number)
    for number, grammar in enumerate(GRAMMARS)
]
PROMPTS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [20, 21], [30, 31, 32], [40] * 7]
Answers = list[tuple[list[int], FinishReason]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("small")
    save_small_model("Llama", found)
    return found


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(folder, Shard(), "float32", None)
    torch.set_num_threads(threads)


def engine(model: LoadedModel, blocks: int = 64, block_size: int = 8, budget: int = 64) -> Engine:
    config = model.config
    kv = KVCache.allocate(
        blocks, block_size, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device
    )
    sampler = Sampler()
    ranks = Ranks(Runner(model, kv), sampler, Followers(parse_settings(["--model", "model", "--socket-fd", "-1"])))
    return Engine(BlockPool(blocks, block_size, b"key"), Limits(256, budget, 4, True), SIZE, ranks, sampler)


def constraint(grammar: str | None) -> Constraint | None:
    return None if grammar is None else Constraint(MatcherFactory(VOCABULARY, SIZE).matcher(grammar), SIZE)


def answers(under_test: Engine, which: tuple[int, ...] = (0, 1, 2, 3)) -> Answers:
    for id in which:
        under_test.submit(Submit(id, PROMPTS[id], PARAMS[id], 0.0), constraint(PARAMS[id].grammar))
    tokens: dict[int, list[int]] = {id: [] for id in which}
    reasons: dict[int, FinishReason] = {}
    while under_test.has_work:
        for output in under_test.step():
            tokens[output.id] += output.tokens
            if output.finish_reason is not None:
                reasons[output.id] = output.finish_reason
        under_test.scheduler.check_integrity()
    return [(tokens[id], reasons[id]) for id in which]


@pytest.fixture(scope="module")
def alone(model: LoadedModel) -> Answers:
    return [answers(engine(model), (id,))[0] for id in range(4)]


def test_alone_each_is_what_was_asked_for(alone: Answers) -> None:
    def text(number: int) -> str:
        tokens, reason = alone[number]
        assert reason is FinishReason.STOP
        return b"".join(bytes([CHARACTERS[token]]) for token in tokens if token != END).decode()

    assert set(json.loads(text(0))) == {"a", "b", "c"}
    assert re.fullmatch("[a-d]{5,20}(, [0-9]{2,6}é?){1,3}", text(1))
    assert re.fullmatch("(yes|no|perhaps), [A-Z]{3,9}", text(3))


def test_together(model: LoadedModel, alone: Answers) -> None:
    assert answers(engine(model)) == alone


def test_in_small_chunks(model: LoadedModel, alone: Answers) -> None:
    assert answers(engine(model, budget=3)) == alone


def test_after_preemption(model: LoadedModel, alone: Answers) -> None:
    under_test = engine(model, blocks=30, block_size=2)
    assert answers(under_test) == alone
    assert under_test.stats().preemptions > 0


def test_while_others_with_a_grammar_go_away(model: LoadedModel, alone: Answers) -> None:
    under_test = engine(model)
    for id in range(10, 14):
        under_test.submit(Submit(id, PROMPTS[0], replace(PARAMS[0], seed=id), 0.0), constraint(GRAMMARS[0]))
    for _ in range(5):
        under_test.step()
    under_test.abort(Abort(list(range(10, 14))))
    assert answers(under_test) == alone
    assert under_test.stats().kv_blocks_used == 0


@pytest.mark.parametrize("ranks", [1, 3], ids=["one rank", "three ranks"])
def test_in_processes_of_its_own(ranks: int, folder: Path, alone: Answers) -> None:
    flags = ["--dtype", "float32", "--max-model-len", "256", "--kv-cache-memory", str(8 * 2**20), "--threads", "1"]
    with RuntimeProcess(folder, *flags, "--tensor-parallel", str(ranks)) as runtime:
        runtime.ready()
        runtime.channel.send(VOCABULARY)
        # Gone before its grammar is there, and one that is no grammar: neither disturbs the rest.
        runtime.submit(90, PROMPTS[0], PARAMS[0])
        runtime.abort(90)
        runtime.submit(91, PROMPTS[0], replace(PARAMS[0], grammar="start: nothing"))
        for id in range(4):
            runtime.submit(id, PROMPTS[id], PARAMS[id])
        found: dict[int, list[int]] = {id: [] for id in range(4)}
        reasons: dict[int, FinishReason] = {}
        while len(reasons) < 5:
            for output in runtime.outputs().outputs:
                if output.tokens:
                    found[output.id] += output.tokens
                if output.finish_reason is not None:
                    reasons[output.id] = output.finish_reason
        assert reasons.pop(91) is FinishReason.ABORT
        assert [(found[id], reasons[id]) for id in range(4)] == alone
        assert runtime.quit() == 0
