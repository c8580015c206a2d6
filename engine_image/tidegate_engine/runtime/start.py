"""From settings to a warm model: what every rank does before its first step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch

from tidegate_engine.core.scheduler import Limits
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import KVCache, block_bytes
from tidegate_engine.runtime.cuda_graphs import GraphedSteps, capture_for
from tidegate_engine.runtime.kv_sizing import num_blocks
from tidegate_engine.runtime.limits import machine_limits
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.settings import BLOCK_SIZE, RuntimeSettings

_STEP_TIMEOUT = timedelta(seconds=60)
"""How long a rank waits for another within a step, at most; runtime.watch notices one that is lost long before."""


@dataclass(slots=True)
class Clock:
    """How long each part of the start took, seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - began


def use_threads(settings: RuntimeSettings) -> int:
    """Set torch's threads to this rank's share of the CPU limit; more would only wait for each other."""
    threads = settings.threads or max(1, machine_limits().threads // settings.tensor_parallel)
    torch.set_num_threads(threads)
    return threads


def load_model(settings: RuntimeSettings, rendezvous: Path | None) -> LoadedModel:
    """Weights in memory, ranks connected. Raises ModelFileError."""
    if settings.tensor_parallel > 1:
        # Ranks share a pod: without this gloo looks up the host's name, which need not resolve.
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{rendezvous}",
            rank=settings.rank,
            world_size=settings.tensor_parallel,
            timeout=_STEP_TIMEOUT,
        )
    shard = Shard(settings.rank, settings.tensor_parallel)
    return load(
        settings.model,
        shard,
        settings.dtype,
        settings.max_model_len,
        settings.quantization,
        settings.kv_cache_dtype,
        settings.lora,
    )


def limits_of(settings: RuntimeSettings, model: LoadedModel) -> Limits:
    """What bounds this model's steps and requests."""
    return Limits(
        max_model_len=model.config.max_position,
        token_budget=settings.chunked_prefill_tokens,
        slots=settings.max_running_requests,
        prefix_caching=settings.prefix_caching,
    )


def blocks_that_fit(settings: RuntimeSettings, model: LoadedModel, limits: Limits, beside: int = 0) -> int:
    """Blocks of KV cache this rank has room for, now that its weights are in memory. Raises CannotStart.

    `beside` are the bytes that each takes in another model's cache on this rank.
    """
    config = model.config
    ranks = settings.tensor_parallel
    # The memory given is the pod's. The rank with the most heads needs the most of it, and decides for all.
    share = settings.kv_cache_memory
    if share is not None and ranks > 1:
        share = share * model.kv_heads // max(config.num_kv_heads, ranks)  # beyond them each rank has a copy of one
    return num_blocks(
        memory=share,
        memory_left=machine_limits().memory_left // ranks,
        bytes_per_block=beside
        + block_bytes(BLOCK_SIZE, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype),
        block_size=BLOCK_SIZE,
        max_model_len=limits.max_model_len,
        slots=limits.slots,
    )


def slots_with_graphs(settings: RuntimeSettings, model: LoadedModel, limits: Limits) -> int:
    """Requests that a captured decoding step holds; 0 where none is captured.

    Ranks meet through gloo, and experts are told their tokens by the host: neither can be part of a CUDA graph.
    """
    graphed = model.device.startswith("cuda") and settings.tensor_parallel == 1 and model.config.experts is None
    return limits.slots if graphed else 0


def warm_runner(model: LoadedModel, blocks: int, clock: Clock, slots_with_graphs: int = 0) -> Runner:
    """Cache allocated and touched, first steps made, and decoding captured for so many requests."""
    config = model.config
    scrap = 1 if slots_with_graphs else 0  # what rows of padding write to; the scheduler's pool does not have it
    with clock.measure("kv"):
        kv = KVCache.allocate(
            blocks + scrap, BLOCK_SIZE, config.num_layers, model.kv_heads, config.head_dim, model.kv_dtype, model.device
        )
    with clock.measure("warmup"):
        Runner(model, kv).warm_up()
        if not slots_with_graphs:
            return Runner(model, kv)
        return Runner(model, kv, GraphedSteps(model, kv, slots_with_graphs, capture_for(model.device)))
