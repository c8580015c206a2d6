"""Quantized weights, and a quantized cache: tokens of their own, and the same ones whatever shares the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import torch
from model_file import smollm2
from small_models import save_small_model
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Limits
from tidegate_engine.files.gguf import read_gguf
from tidegate_engine.kernels.choice import choose
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import Attention, AttentionSpec, Kernels, KVScales, Linear, Matrix, Paging
from tidegate_engine.kernels.reference import REFERENCE
from tidegate_engine.link.messages import Submit
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.build import build
from tidegate_engine.model.folder_source import FolderSource
from tidegate_engine.model.gguf_source import GGUFSource
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.parts import Parts
from tidegate_engine.model.quantized_source import QuantizedSource
from tidegate_engine.model.source import Source
from tidegate_engine.model.weights import Weights
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.ranks import Ranks
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import parse_settings
from tidegate_engine.server.tokenizer import load_tokenizer
from torch import Tensor

GREEDY = SamplingParams(max_tokens=10, temperature=0.0)
TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived a fisherman who",
    "1, 1, 2, 3, 5, 8, 13, 21,",
)
SMALL_PROMPTS = [[(7 * at + 13 * row) % 100 for at in range(length)] for row, length in enumerate((5, 21, 14, 9))]


class StoredWide:
    """Another source's numbers without its groups: what a file stores in four bits already would stay as it is."""

    def __init__(self, source: Source) -> None:
        self.path, self._source = source.path, source

    def names(self) -> Iterable[str]:
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(name)

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        self._source.read(name, rows, out)

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        return None


def row_by_row(kernels: Kernels) -> Kernels:
    """The same kernels, given one row at a time, so that a row comes out the same to the last bit in every batch.

    Torch's own matrix product does not promise that, and a code is a rounded number: the last bit may decide it.
    """

    def linear(weight: Matrix, bias: Tensor | None) -> Linear:
        whole = kernels.linear(weight, bias)
        return lambda x: torch.cat([whole(row) for row in x.split(1)])

    def plan_attention(paging: Paging, spec: AttentionSpec) -> Attention:
        def attend(query: Tensor, keys: Tensor, values: Tensor, scales: KVScales | None = None) -> Tensor:
            out = torch.empty_like(query)
            starts = paging.query_start.tolist()
            for request, length in enumerate(paging.context_lens.tolist()):
                for row in range(starts[request], starts[request + 1]):
                    seen = length - (starts[request + 1] - row) + 1
                    alone = Paging(
                        torch.tensor([0, 1], dtype=torch.int32),
                        torch.tensor([seen], dtype=torch.int32),
                        paging.block_tables[request : request + 1],
                        1,
                        seen,
                        paging.block_size,
                    )
                    attention = kernels.plan_attention(alone, spec)
                    out[row : row + 1] = attention(query[row : row + 1].contiguous(), keys, values, scales)
            return out

        return attend

    return replace(kernels, linear=linear, plan_attention=plan_attention)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=["int8", "int4", "fp8"])
def model(request: pytest.FixtureRequest) -> LoadedModel:
    """The real model with its weights quantized."""
    loaded = load(smollm2(), Shard(), "float32", 256)
    stored = Parts(GGUFSource(read_gguf(smollm2()), loaded.config), loaded.config)
    source = QuantizedSource(StoredWide(stored), request.param)
    weights = Weights(source, torch.float32, "cpu", keep_quantized=True)
    return replace(loaded, network=build(loaded.config, weights, Shard(), choose("cpu", compiled=False), "cpu"))


@pytest.fixture(scope="module", params=["int8", "fp8"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A small model with its cache quantized, each row of which is computed by itself."""
    folder = tmp_path_factory.mktemp("small")
    save_small_model("Llama", folder)
    loaded = load(folder, Shard(), "float32", 256, kv_cache_dtype=request.param)
    source = QuantizedSource(Parts(FolderSource(folder), loaded.config), "int4")
    weights = Weights(source, torch.float32, "cpu", keep_quantized=True)
    return replace(loaded, network=build(loaded.config, weights, Shard(), row_by_row(REFERENCE), "cpu"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = load_tokenizer(smollm2())
    return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


@pytest.fixture(scope="module")
def alone(model: LoadedModel, prompts: list[list[int]]) -> list[list[int]]:
    """Every prompt by itself, in one chunk, with an empty cache."""
    return [answers(model, [prompt])[0] for prompt in prompts]


@pytest.fixture(scope="module")
def small_alone(small: LoadedModel) -> list[list[int]]:
    """The same of the small model."""
    return [answers(small, [prompt])[0] for prompt in SMALL_PROMPTS]


def answers(
    model: LoadedModel,
    prompts: list[list[int]],
    blocks: int = 64,
    block_size: int = 16,
    budget: int = 512,
    again: bool = False,
) -> list[list[int]]:
    """Greedy tokens of all at once; `again` asks twice, the second time with the prompts in the prefix cache."""
    config = model.config
    kv = KVCache.allocate(
        blocks, block_size, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device
    )
    sampler = Sampler()
    followers = Followers(parse_settings(["--model", "model", "--socket-fd", "-1"]))
    limits = Limits(256, budget, 8, prefix_caching=again)
    ranks = Ranks(Runner(model, kv), sampler, followers)
    engine = Engine(BlockPool(blocks, block_size, b"key"), limits, config.vocab_size, ranks, sampler)
    tokens: list[list[int]] = []
    for first in (0, len(prompts)) if again else (0,):
        tokens, cached = [[] for _ in prompts], 0
        for id, prompt in enumerate(prompts, first):
            engine.submit(Submit(id, list(prompt), GREEDY, 0.0))
        while engine.has_work:
            for output in engine.step():
                tokens[output.id - first] += output.tokens
                cached += output.cached_tokens
        assert (cached > 0) == (first > 0)
    return tokens


@pytest.mark.model
class TestWeights:
    def test_it_has_something_to_say(self, alone: list[list[int]]) -> None:
        paris = load_tokenizer(smollm2()).encode(" Paris", add_special_tokens=False)
        assert alone[0][: len(paris)] == paris

    def test_all_at_once(self, model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
        assert answers(model, prompts) == alone

    def test_in_chunks(self, model: LoadedModel, prompts: list[list[int]], alone: list[list[int]]) -> None:
        assert answers(model, prompts, budget=8) == alone


class TestCache:
    def test_all_at_once(self, small: LoadedModel, small_alone: list[list[int]]) -> None:
        assert len({tuple(answer) for answer in small_alone}) == len(SMALL_PROMPTS)
        assert answers(small, SMALL_PROMPTS) == small_alone

    def test_in_chunks(self, small: LoadedModel, small_alone: list[list[int]]) -> None:
        assert answers(small, SMALL_PROMPTS, budget=8) == small_alone

    def test_after_preemption(self, small: LoadedModel, small_alone: list[list[int]]) -> None:
        assert answers(small, SMALL_PROMPTS, blocks=9, block_size=4) == small_alone

    def test_with_prompts_in_the_cache(self, small: LoadedModel, small_alone: list[list[int]]) -> None:
        assert answers(small, SMALL_PROMPTS, block_size=4, again=True) == small_alone
