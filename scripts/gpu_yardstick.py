"""What gpu_acceptance measures: attention as a share of a copy's bandwidth, and 256 requests through our scheduler."""

from __future__ import annotations

import gc
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from kernel_cases import Step
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Limits, Scheduler
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.files.config_json import from_folder
from tidegate_engine.kernels import triton_sampling
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import AttentionSpec, Kernels, Paging
from tidegate_engine.kernels.triton_attention import TritonAttention
from tidegate_engine.kernels.triton_tiles import AttentionTiles, candidates, default_tiles, fastest, splits
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.build import build
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.load import LoadedModel
from tidegate_engine.model.weights import Weights
from tidegate_engine.runtime.cuda_graphs import capture_for
from tidegate_engine.runtime.device_sampler import DeviceSampler
from tidegate_engine.runtime.launcher import DeviceLauncher
from tidegate_engine.runtime.overlap import OverlappedSteps

BLOCK_SIZE = 16
QWEN3 = {"layers": 28, "hidden": 1024, "width": 3072, "heads": 16, "kv_heads": 8, "head": 128, "vocabulary": 151936}
TINY = {"layers": 1, "hidden": 32, "width": 48, "heads": 4, "kv_heads": 2, "head": 16, "vocabulary": 61}
DECODE, PREFILL = Step((1,) * 64, (4096,) * 64, 16, 8, 128, 16), Step((4096,) * 4, (4096,) * 4, 16, 8, 128, 16)
TINY_STEP = Step((1, 1), (40, 9), 4, 2, 16, 16)


class RandomSource:
    """Weights drawn by name: the same on every device."""

    path = Path("random")

    def __init__(self, config: ModelConfig, device: str = "cpu") -> None:
        hidden, width, keys = config.hidden_size, config.intermediate_size, config.num_kv_heads * config.head_dim
        queries = config.num_heads * config.head_dim
        self._device = device
        self._shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
        self._shapes["model.norm.weight"] = (hidden,)
        for layer in range(config.num_layers):
            for name, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.q_norm": (config.head_dim,),
                "self_attn.k_norm": (config.head_dim,),
                "self_attn.o_proj": (hidden, queries),
                "mlp.gate_proj": (width, hidden),
                "mlp.up_proj": (width, hidden),
                "mlp.down_proj": (hidden, width),
            }.items():
                self._shapes[f"model.layers.{layer}.{name}.weight"] = shape

    def names(self) -> Iterable[str]:
        """See Source."""
        return self._shapes

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source."""
        return self._shapes[name]

    def read(self, name: str, rows: slice, out: torch.Tensor) -> None:
        """See Source."""
        made = torch.Generator(self._device).manual_seed(sum(name.encode()))
        shape = self._shapes[name]
        values = torch.randn(shape, generator=made, device=self._device) * (0.04 if len(shape) > 1 else 0.2)
        out.copy_((values + (len(shape) == 1))[rows])

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        return None


def qwen3(sizes: dict[str, int], longest: int) -> ModelConfig:
    """The configuration of a Qwen3 of these sizes, read as any other's is."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(
            json.dumps(
                {
                    "architectures": ["Qwen3ForCausalLM"],
                    "model_type": "qwen3",
                    "hidden_act": "silu",
                    "num_hidden_layers": sizes["layers"],
                    "hidden_size": sizes["hidden"],
                    "intermediate_size": sizes["width"],
                    "num_attention_heads": sizes["heads"],
                    "num_key_value_heads": sizes["kv_heads"],
                    "head_dim": sizes["head"],
                    "vocab_size": sizes["vocabulary"],
                    "max_position_embeddings": longest,
                    "rope_theta": 1000000.0,
                    "rms_norm_eps": 1e-6,
                    "tie_word_embeddings": True,
                    "attention_bias": False,
                }
            )
        )
        return from_folder(Path(folder))


def model_on(device: str, dtype: torch.dtype, config: ModelConfig, kernels: Kernels) -> LoadedModel:
    """A model of random weights."""
    network = build(config, Weights(RandomSource(config), dtype, device), Shard(), kernels, device)
    return LoadedModel(config, dtype, device, kernels.description, config.num_kv_heads, dtype, network)


def seconds(device: str, work: Callable[[], object], repeats: int = 20) -> float:
    """The median of several runs on the device's own clock; the first two compile and are not counted."""
    work(), work()
    found: list[float] = []
    for _ in range(repeats):
        if not device.startswith("cuda"):
            began = time.perf_counter()
            work()
            found.append(time.perf_counter() - began)
            continue
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return sorted(found)[len(found) // 2]


def copy_bandwidth(device: str, size: int) -> float:
    """Bytes a second, read and written, of a copy of `size` bytes."""
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds(device, lambda: target.copy_(source))


@dataclass(frozen=True)
class AttentionRun:
    """One layer's attention of a step, with tiles to be given."""

    device: str
    query: torch.Tensor
    caches: list[torch.Tensor]
    paging: Paging
    scale: float

    @staticmethod
    def of(step: Step, device: str, dtype: torch.dtype) -> AttentionRun:
        """Random keys and values, in blocks that lie in no order."""
        blocks = [-(-length // step.block_size) for length in step.context]
        shape = (sum(blocks), step.kv_heads, step.block_size, step.head_dim)
        caches = [torch.randn(shape, dtype=dtype, device=device) for _ in range(2)]
        query = torch.randn(sum(step.new), step.heads, step.head_dim, dtype=dtype, device=device)
        order = torch.randperm(sum(blocks), generator=torch.Generator().manual_seed(0)).to(torch.int32)
        tables = torch.zeros(len(blocks), max(blocks), dtype=torch.int32)
        first = 0
        for row, count in enumerate(blocks):
            tables[row, :count] = order[first : first + count]
            first += count
        starts = torch.tensor([0, *step.new]).cumsum(0).to(torch.int32).to(device)
        lengths = torch.tensor(step.context, dtype=torch.int32, device=device)
        paging = Paging(starts, lengths, tables.to(device), max(step.new), max(step.context), step.block_size)
        return AttentionRun(device, query, caches, paging, step.head_dim**-0.5)

    def seconds(self, tiles: AttentionTiles) -> float | None:
        """How long it takes with these tiles; None where they do not fit this device."""
        attend = TritonAttention(tiles).plan(self.paging, AttentionSpec(self.scale))
        try:
            return seconds(self.device, lambda: attend(self.query, *self.caches), 10)
        except Exception as error:  # noqa: BLE001  what does not compile or fit here is not chosen, and said
            print(f"     {tiles}: {type(error).__name__}: {str(error)[:150]}", flush=True)
            return None


def attention(device: str, tiny: bool) -> tuple[AttentionTiles, dict[str, Any]]:
    """The fastest tiles of a bounded search, and what they reach."""
    dtype = torch.float32 if tiny else torch.bfloat16
    decode, prefill = (TINY_STEP, Step((20,), (33,), 4, 2, 16, 16)) if tiny else (DECODE, PREFILL)
    tiles = default_tiles(dtype.itemsize, decode.head_dim)
    run = AttentionRun.of(decode, device, dtype)
    timed: list[dict[str, Any]] = []

    def taken(choice: AttentionTiles) -> float | None:
        found = run.seconds(choice)
        timed.append({"tiles": str(choice), "seconds": found})
        return found

    tiles, _ = fastest(candidates(tiles, decoding=True)[: 2 if tiny else None], taken)
    tiles, decode_seconds = fastest(splits(tiles)[: 2 if tiny else None], taken)
    copied = copy_bandwidth(device, 2**20 if tiny else 2**32)
    read = 2 * dtype.itemsize * sum(decode.context) * decode.kv_heads * decode.head_dim
    run = AttentionRun.of(prefill, device, dtype)
    tiles, prefill_seconds = fastest(candidates(tiles, decoding=False)[: 2 if tiny else None], taken)
    operations = sum(4 * prefill.heads * prefill.head_dim * length**2 / 2 for length in prefill.context)
    return tiles, {
        "tiles": str(tiles),
        "copy_bytes_per_second": copied,
        "decode_seconds": decode_seconds,
        "decode_bytes_per_second": read / decode_seconds,
        "decode_share_of_copy": read / decode_seconds / copied,
        "decode_share_goal": 0.8,
        "prefill_operations_per_second": operations / prefill_seconds,
        "timed": timed,
    }


class Yardstick:
    """Requests of random lengths through scheduler, graphs and sampling, with nothing but torch and Triton."""

    def __init__(self, device: str, tiny: bool, kernels: Kernels) -> None:
        self._requests = 5 if tiny else 256
        self._lengths = (3, 9) if tiny else (100, 1024)
        self._budget = 24 if tiny else 16384
        self._longest = 32 if tiny else 2048
        config = qwen3(TINY if tiny else QWEN3, self._longest)
        self._model = model_on(device, torch.float32 if tiny else torch.bfloat16, config, kernels)
        self._blocks = self._requests * self._longest // BLOCK_SIZE
        kv = KVCache.allocate(
            self._blocks + 1,
            BLOCK_SIZE,
            config.num_layers,
            config.num_kv_heads,
            config.head_dim,
            self._model.kv_dtype,
            device,
        )
        self._sampler = DeviceSampler(triton_sampling.sample, device)
        began = time.perf_counter()
        self._launcher = DeviceLauncher(
            self._model, kv, self._requests, self._longest, capture_for(device), self._sampler
        )
        self.capture_seconds = time.perf_counter() - began

    def run(self, temperature: float) -> dict[str, Any]:
        """All requests queued at once, until the last is answered."""
        drawn = random.Random(0)
        limits = Limits(self._longest, self._budget, self._requests)
        scheduler = Scheduler(BlockPool(self._blocks, BLOCK_SIZE, b"yardstick"), limits)
        for id in range(self._requests):
            prompt = [drawn.randrange(self._model.config.vocab_size) for _ in range(drawn.randint(*self._lengths))]
            params = SamplingParams(drawn.randint(*self._lengths), temperature, seed=id, ignore_eos=True)
            scheduler.add(id, prompt, params)
            self._sampler.add(id, params)
        gc.collect()
        gc.freeze()
        steps = OverlappedSteps(scheduler, self._launcher)
        began, count = time.perf_counter(), 0
        while steps.has_work:
            steps.step()
            count += 1
        taken = time.perf_counter() - began
        totals = scheduler.totals
        return {
            "seconds": taken,
            "steps": count,
            "prompt_tokens": totals.prompt_tokens,
            "generated_tokens": totals.generated_tokens,
            "tokens_per_second": totals.generated_tokens / taken,
            "goal": 26000,
            "least": 20000,
        }
