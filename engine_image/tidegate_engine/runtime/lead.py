"""Rank 0, and the others: from a warm model to the last step."""

from __future__ import annotations

import secrets

from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.scheduler import Scheduler
from tidegate_engine.link.channel import BlockingChannel
from tidegate_engine.link.messages import Ready, ToRuntime
from tidegate_engine.model import LoadedModel
from tidegate_engine.runtime import loop
from tidegate_engine.runtime.drafting import draft_block_bytes, load_draft, speculation
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.errors import RankLost
from tidegate_engine.runtime.followers import Begin, Followers, Loaded, ToFollower
from tidegate_engine.runtime.grammars import Grammars
from tidegate_engine.runtime.ranks import Ranks, follow
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import BLOCK_SIZE, RuntimeSettings
from tidegate_engine.runtime.start import (
    Clock,
    blocks_that_fit,
    limits_of,
    load_model,
    slots_with_graphs,
    use_threads,
    warm_runner,
)


def lead(
    settings: RuntimeSettings, channel: BlockingChannel[ToRuntime], followers: Followers, seconds: dict[str, float]
) -> None:
    """Load, say Ready, step until the server has had enough. Raises ModelFileError, CannotStart, RankLost.

    `seconds` are the parts of the start so far.
    """
    engine, _, ready = warm_engine(settings, followers, seconds)
    channel.send(ready)
    loop.run(channel, engine, followers, Grammars(ready.vocab_size))


def warm_engine(
    settings: RuntimeSettings, followers: Followers, seconds: dict[str, float]
) -> tuple[Engine, LoadedModel, Ready]:
    """An engine that is ready to step, its model, and what the server is told of it. The yardstick steps it too."""
    clock = Clock(seconds)
    threads = use_threads(settings)
    with clock.measure("weights"):
        model = load_model(settings, followers.rendezvous)
        limits = limits_of(settings, model)
        draft = load_draft(settings, model)
        blocks = followers.least_blocks(blocks_that_fit(settings, model, limits, draft_block_bytes(draft)))
    hash_key = secrets.token_bytes(32)
    followers.tell(Begin(blocks, hash_key))
    runner = warm_runner(model, blocks, clock, slots_with_graphs(settings, model, limits))
    sampler = Sampler()
    engine = Engine(
        BlockPool(blocks, BLOCK_SIZE, hash_key),
        limits,
        model.config.vocab_size,
        Ranks(runner, sampler, followers),
        sampler,
        speculation(settings, draft, blocks, sampler, clock),
    )
    ready = Ready(
        kv_blocks=blocks,
        block_size=BLOCK_SIZE,
        max_model_len=limits.max_model_len,
        vocab_size=model.config.vocab_size,
        slots=limits.slots,
        kernels=f"{model.kernels}, {threads} threads",
        seconds=clock.seconds,
    )
    return engine, model, ready


def follow_leader(settings: RuntimeSettings, channel: BlockingChannel[ToFollower]) -> None:
    """Load, tell the leader, do as it does until it closes the channel. Raises ModelFileError, CannotStart."""
    use_threads(settings)
    model = load_model(settings, settings.rendezvous)
    limits = limits_of(settings, model)
    channel.send(Loaded(blocks_that_fit(settings, model, limits)))
    messages = channel.poll(None)
    while not messages and not channel.closed:
        messages = channel.poll(None)
    if channel.closed:
        return
    begin = messages[0]
    if not isinstance(begin, Begin) or len(messages) > 1:
        raise RankLost("the leader did not begin by saying so")
    runner = warm_runner(model, begin.num_blocks, Clock())
    follow(channel, Scheduler(BlockPool(begin.num_blocks, BLOCK_SIZE, begin.hash_key), limits), runner)
