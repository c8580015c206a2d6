"""A draft model: what it has read of a text, and what it guesses after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from small_models import save_small_model
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Batch, Decoding
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.draft_model import DraftModel
from tidegate_engine.runtime.drafting import load_draft
from tidegate_engine.runtime.errors import CannotStart
from tidegate_engine.runtime.readout import Readout
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import parse_settings

BLOCK = 4
GREEDY = SamplingParams(max_tokens=99, temperature=0.0)


@dataclass(frozen=True, slots=True)
class Watched(Runner):
    """A runner that remembers how many tokens each pass computed."""

    passes: list[int] = field(default_factory=list)

    def run(self, batch: Batch) -> tuple[torch.Tensor, Readout]:
        self.passes.append(batch.num_tokens)
        # Not super(): a dataclass with slots is made twice.
        return Runner.run(self, batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("draft")
    save_small_model("Llama", made)
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(folder, Shard(), "float32", None)


class Reader:
    """A draft model with a cache of so many blocks, that says what it guesses and what that cost."""

    def __init__(self, model: LoadedModel, blocks: int = 64, budget: int = 512) -> None:
        config = model.config
        kv = KVCache.allocate(
            blocks, BLOCK, config.num_layers, model.kv_heads, config.head_dim, model.dtype, model.device
        )
        self.runner = Watched(model, kv)
        self.sampler = Sampler()
        self.pool = BlockPool(blocks, BLOCK, b"")
        self.draft = DraftModel(self.runner, self.sampler, self.pool, budget)

    def guess(self, *texts: Sequence[int], depth: int = 3) -> dict[int, list[int]]:
        for id in range(len(texts)):
            self.sampler.add(id, [], GREEDY)
        return self.draft.propose([(Decoding(id, text, 99), depth) for id, text in enumerate(texts) if text])

    def cost(self) -> list[int]:
        found = list(self.runner.passes)
        self.runner.passes.clear()
        return found


@pytest.fixture
def reader(model: LoadedModel) -> Iterator[Reader]:
    reader = Reader(model)
    yield reader
    for id in range(9):
        reader.draft.forget(id)
    assert reader.pool.num_used == 0
    reader.pool.check_integrity()


def text(length: int, first: int = 3) -> list[int]:
    return [(first + 7 * at) % 101 for at in range(length)]


def new_guess(model: LoadedModel, tokens: Sequence[int], depth: int = 3) -> list[int]:
    """By a model that has read nothing."""
    return Reader(model).guess(tokens, depth=depth)[0]


def test_a_text_is_read_once_and_each_further_guess_is_a_pass_of_one_token(reader: Reader) -> None:
    guesses = reader.guess(text(10), depth=4)[0]
    assert len(guesses) == 4
    assert reader.cost() == [10, 1, 1, 1]


def test_guesses_that_came_true_need_not_be_read_again(reader: Reader, model: LoadedModel) -> None:
    tokens = text(10)
    guesses = reader.guess(tokens)[0]
    reader.cost()
    tokens += [*guesses, 50]
    assert reader.guess(tokens)[0] == new_guess(model, tokens)
    # The last of three guesses was not fed to the model, and the token after them is new.
    assert reader.cost() == [2, 1, 1]


@pytest.mark.parametrize("right", [0, 1, 2])
def test_after_a_wrong_guess_it_reads_on_where_the_text_goes_another_way(
    reader: Reader, model: LoadedModel, right: int
) -> None:
    tokens = text(10)
    guesses = reader.guess(tokens)[0]
    reader.cost()
    tokens += [*guesses[:right], (guesses[right] + 1) % 101]
    assert reader.guess(tokens)[0] == new_guess(model, tokens)
    assert reader.cost() == [1, 1, 1]


def test_guesses_that_were_never_checked_may_be_made_again(reader: Reader) -> None:
    tokens = text(10)
    first = reader.guess(tokens)
    assert reader.guess(tokens) == first
    reader.cost()
    assert reader.guess([*tokens, first[0][0]])[0][:2] == first[0][1:]
    assert reader.cost()[0] == 1


def test_a_text_that_went_on_without_guesses_is_read_when_they_are_wanted(reader: Reader, model: LoadedModel) -> None:
    reader.guess(text(10))
    reader.cost()
    longer = [*text(10), 9, 8, 7, 6, 5]
    assert reader.guess(longer)[0] == new_guess(model, longer)
    assert reader.cost() == [5, 1, 1]


def test_a_long_text_is_read_within_the_steps_budget(model: LoadedModel) -> None:
    reader = Reader(model, budget=8)
    assert reader.guess(text(20), depth=2) == {}
    assert reader.guess(text(20), depth=2) == {}
    assert reader.guess(text(20), depth=2) == {0: new_guess(model, text(20), depth=2)}
    assert reader.cost() == [8, 8, 4, 1]


def test_several_are_guessed_for_together_and_each_as_alone(reader: Reader, model: LoadedModel) -> None:
    texts = [text(10), text(5, first=40), text(1, first=77)]
    assert reader.guess(*texts) == {id: new_guess(model, tokens) for id, tokens in enumerate(texts)}
    assert reader.cost() == [16, 3, 3]


def test_without_blocks_nothing_is_guessed_and_who_wants_nothing_gives_his_up(model: LoadedModel) -> None:
    reader = Reader(model, blocks=5)
    assert set(reader.guess(text(10), text(10, first=40))) == {0}
    assert set(reader.guess([], text(10, first=40))) == {1}
    assert reader.guess([], text(10, first=40))[1] == new_guess(model, text(10, first=40))


def test_past_the_longest_text_it_knows_it_guesses_no_more(model: LoadedModel) -> None:
    longest = model.config.max_position
    reader = Reader(model, blocks=longest // BLOCK)
    assert len(reader.guess(text(longest - 2), depth=4)[0]) == 2
    assert reader.guess(text(longest), depth=4) == {}


def test_a_draft_model_with_other_tokens_is_refused(folder: Path, model: LoadedModel, tmp_path: Path) -> None:
    save_small_model("Llama with 9 heads over 3", tmp_path)
    flags = ["--model", str(folder), "--socket-fd", "3", "--speculative", "draft", "--draft-model"]
    with pytest.raises(CannotStart, match=r"has 100 tokens .* the model 101 .* same tokenizer"):
        load_draft(parse_settings([*flags, str(tmp_path)]), model)
    assert load_draft(parse_settings([*flags, str(folder)]), model) is not None
    assert load_draft(parse_settings(flags[:-3]), model) is None
