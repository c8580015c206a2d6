"""Prompt and decode: ours and llama.cpp, both loaded, taking turns."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_bench.messages import Advance, Close, Open, Prompt, Timing
from tidegate_bench.plan import DecodeFigure, PromptFigure, random_ids, slices
from tidegate_bench.turns import Pair, take_turns
from tidegate_bench.worker_process import Worker

_WARM_UP = 32
"""Tokens of a prompt, and of an answer, that each worker computes before it is measured."""


def warm_up(worker: Worker) -> None:
    """Let a worker allocate and compile what it will."""
    ids = random_ids(_WARM_UP, worker.hello.vocab_size, "warm-up")
    worker.ask(Prompt(ids))
    worker.ask(Open([ids], _WARM_UP))
    worker.ask(Advance(_WARM_UP))
    worker.ask(Close())


def measure_prompt(figure: PromptFigure, ours: Worker, peer: Worker, rounds: int) -> list[Pair]:
    """A new prompt each turn, the same for both."""

    def turn(worker: Worker, number: int) -> Timing:
        # The number is part of the seed: an engine that remembers prompts has nothing to remember.
        ids = random_ids(figure.length, worker.hello.vocab_size, f"{figure.key} {number}")
        return worker.ask(Prompt(ids))

    return take_turns(rounds, lambda number: turn(ours, number), lambda number: turn(peer, number))


def measure_decode(figure: DecodeFigure, ours: Worker, peer: Worker, rounds: int) -> Iterator[Pair]:
    """Both have the same generation open, and go on with it in turns."""
    prompts = [
        random_ids(figure.context, ours.hello.vocab_size, f"{figure.key} {request}")
        for request in range(figure.requests)
    ]
    parts = slices(figure.new_tokens, rounds)
    for _ in range(figure.generations):
        for worker in (ours, peer):
            worker.ask(Open(prompts, figure.new_tokens))
        yield from take_turns(
            len(parts),
            lambda turn: ours.ask(Advance(parts[turn])),
            lambda turn: peer.ask(Advance(parts[turn])),
        )
        for worker in (ours, peer):
            worker.ask(Close())
