"""A model over several processes, each a rank of a gloo group."""

from __future__ import annotations

import multiprocessing
import socket
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from forward_steps import Sequences
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard

_PROMPTS = [[5, 17, 99, 3, 42, 42, 8], [64]]


def two_steps(folder: Path, shard: Shard, adapter: Path | None = None) -> tuple[torch.Tensor, int]:
    """Logits after two prompts and after one more token of each, and the rank's key/value heads.

    An adapter is for the first prompt alone.
    """
    model = load(folder, shard, "float32", None, adapters=[] if adapter is None else [adapter])
    sequences = Sequences(model, _PROMPTS, 20, adapters=[] if adapter is None else [1, 0])
    sequences.step([3, 1], sampled=[])
    for tokens in sequences.tokens:
        tokens.append(23)
    first = sequences.step()
    for tokens in sequences.tokens:
        tokens.append(11)
    return torch.cat((first, sequences.step())), model.kv_heads


def _rank(folder: Path, shard: Shard, adapter: Path | None, port: int, answer: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=shard.rank, world_size=shard.size)
    logits, kv_heads = two_steps(folder, shard, adapter)
    answer.send((logits.tolist(), kv_heads))
    dist.destroy_process_group()


def two_steps_over(size: int, folder: Path, adapter: Path | None = None) -> list[tuple[torch.Tensor, int]]:
    """What each rank of a model over so many processes answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Forked: nine processes that each import torch take minutes on two cores. A child computes with one thread, so that
    # it never waits for those of the parent, which it does not have.
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    ranks = [
        context.Process(target=_rank, args=(folder, Shard(rank, size), adapter, port, pipes[rank][1]), daemon=True)
        for rank in range(size)
    ]
    for rank in ranks:
        rank.start()
    try:
        found = []
        for _, own_end in pipes:
            own_end.close()  # so that a rank that dies ends the wait
        for answer, _ in pipes:
            assert answer.poll(120), "a rank did not answer within two minutes"
            logits, kv_heads = answer.recv()
            found.append((torch.tensor(logits), kv_heads))
        return found
    finally:
        for rank in ranks:
            rank.join(30)
            rank.kill()
