"""Steps made ahead, on static buffers, padded to captured sizes, say what steps one by one say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from small_models import save_small_model
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Limits, Scheduler
from tidegate_engine.core.step import Batch, RequestOutput
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache
from tidegate_engine.runtime.cuda_graphs import GraphedSteps, as_it_is, batch_sizes
from tidegate_engine.runtime.launcher import DeviceLauncher
from tidegate_engine.runtime.overlap import OverlappedSteps
from tidegate_engine.runtime.packing import pack
from tidegate_engine.runtime.runner import Runner

BLOCK_SIZE = 4
LONGEST = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("model")
    save_small_model("Qwen3", folder)
    return load(folder, Shard(), "float32", LONGEST)


def cache(model: LoadedModel, blocks: int) -> KVCache:
    config = model.config
    return KVCache.allocate(
        blocks, BLOCK_SIZE, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device
    )


def asked() -> list[tuple[list[int], SamplingParams]]:
    """Prompts that share beginnings, answers of many lengths, some of which end by a token."""
    found = []
    for number in range(11):
        prompt = [3, 1, 4, 1, 5, 9, 2, 6][: 8 - number % 3 * 2] + [number % 5] * (number % 7 + 1)
        stops = tuple(range(40)) if number % 4 == 3 else ()
        found.append((prompt, SamplingParams(6 + number * 3 % 17, temperature=0.0, stop_token_ids=stops)))
    return found


def answers(step: Callable[[], list[RequestOutput]], has_work: Callable[[], bool]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    ended: list[int] = []
    for _ in range(2000):
        if not has_work():
            break
        for output in step():
            found.setdefault(output.id, []).extend(output.tokens)
            ended += [output.id] if output.finish_reason is not None else []
    assert not has_work()
    assert sorted(ended) == sorted(found)
    return found


def scheduler_for(blocks: int, slots: int, budget: int) -> Scheduler:
    scheduler = Scheduler(BlockPool(blocks, BLOCK_SIZE, b"key"), Limits(LONGEST, budget, slots))
    for id, (prompt, params) in enumerate(asked()):
        scheduler.add(id, prompt, params)
    return scheduler


def one_by_one(model: LoadedModel) -> dict[int, list[int]]:
    blocks = 200
    scheduler, kv = scheduler_for(blocks, 1, 64), cache(model, blocks)

    def step() -> list[RequestOutput]:
        batch = scheduler.schedule()
        assert batch is not None
        with torch.inference_mode():
            logits = model.forward(pack(batch, BLOCK_SIZE, model.device), kv)
        return scheduler.commit(batch, [[token] for token in logits.argmax(dim=-1).tolist()])

    return answers(step, lambda: scheduler.has_work)


def test_a_runner_with_graphs_says_what_one_without_says(model: LoadedModel) -> None:
    blocks, slots = 200, 5
    scheduler, kv = scheduler_for(blocks, slots, 64), cache(model, blocks + 1)
    runner = Runner(model, kv, GraphedSteps(model, kv, slots, as_it_is))

    def step() -> list[RequestOutput]:
        batch = scheduler.schedule()
        assert batch is not None
        logits, _ = runner.run(batch)
        return scheduler.commit(batch, [[token] for token in logits.argmax(dim=-1).tolist()])

    assert answers(step, lambda: scheduler.has_work) == one_by_one(model)


def greedy(batch: Batch, ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(dim=-1)


@pytest.mark.parametrize(
    ("blocks", "slots", "budget"),
    [
        pytest.param(200, 11, 64, id="all at once"),
        pytest.param(200, 3, 64, id="three slots, padded to four"),
        pytest.param(200, 5, 7, id="prompts in chunks beside decoding"),
        pytest.param(12, 6, 64, id="so few blocks that requests give way"),
    ],
)
def test_overlapped_steps_say_what_single_steps_say(model: LoadedModel, blocks: int, slots: int, budget: int) -> None:
    scheduler, kv = scheduler_for(blocks, slots, budget), cache(model, blocks + 1)
    steps = OverlappedSteps(scheduler, DeviceLauncher(model, kv, slots, LONGEST, as_it_is, greedy))
    found = answers(steps.step, lambda: steps.has_work)
    assert found == one_by_one(model)
    assert scheduler.pool.num_used == 0
    assert (scheduler.totals.preemptions > 0) == (blocks < 100)


def test_rows_of_padding_write_to_the_scrap_block_alone(model: LoadedModel) -> None:
    blocks = 40
    scheduler = Scheduler(BlockPool(blocks, BLOCK_SIZE, b"key"), Limits(LONGEST, 64, 8))
    for id in range(3):
        scheduler.add(id, [id + 1, 7], SamplingParams(5, temperature=0.0))
    kv = cache(model, blocks + 1)
    launcher = DeviceLauncher(model, kv, 8, LONGEST, as_it_is, greedy)
    before = [keys[:-1].clone() for keys in kv.keys]
    assert all(torch.equal(keys[:-1], torch.zeros_like(keys[:-1])) for keys in kv.keys), "capturing writes there too"
    batch = scheduler.schedule()
    assert batch is not None
    scheduler.commit(batch, launcher.launch(batch).tokens())
    second = scheduler.schedule()
    assert second is not None
    launcher.launch(second)
    own = {(part.block_table[at // BLOCK_SIZE], at % BLOCK_SIZE) for part in second.work for at in range(3)}
    for keys, old in zip(kv.keys, before, strict=True):
        changed = (keys[:-1] != old).any(dim=3).any(dim=1)
        assert {(int(block), int(offset)) for block, offset in changed.nonzero()} == own


@pytest.mark.parametrize("most", [1, 3, 8, 32, 100, 256])
def test_sizes_hold_every_batch_and_waste_little(most: int) -> None:
    sizes = batch_sizes(most)
    assert sizes[-1] == most
    for count in range(1, most + 1):
        size = next(size for size in sizes if size >= count)
        assert size < 2 * count or size == 1
        assert count < 32 or size <= count * 1.3
