"""What is measured: the figures, and prompts that are the same in every run."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptFigure:
    """Time to the first token of a prompt, as tokens a second."""

    key: str
    length: int


@dataclass(frozen=True, slots=True)
class DecodeFigure:
    """Generation for several requests at once, as tokens a second of all of them."""

    key: str
    requests: int
    context: int
    new_tokens: int
    generations: int
    """how often it is repeated: what is over in a second is measured more often"""


PROMPT = PromptFigure("prompt", 512)
DECODES = tuple(
    DecodeFigure(f"decode_{requests}{suffix}", requests, context, 128, generations)
    for context, suffix in ((64, ""), (512, "_ctx512"))
    for requests, generations in ((1, 4), (8, 2), (32, 1))
)


def random_ids(count: int, vocab_size: int, seed: str) -> list[int]:
    """Token ids of a prompt; the same seed gives the same."""
    chance = random.Random(seed)
    return [chance.randrange(vocab_size) for _ in range(count)]


def slices(total: int, rounds: int) -> list[int]:
    """`total` steps in `rounds` turns of nearly equal length, none of them empty."""
    rounds = min(rounds, total)
    return [total * (turn + 1) // rounds - total * turn // rounds for turn in range(rounds)]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests, as prompt and number of tokens wanted, and when each arrives, in seconds."""

    requests: list[tuple[list[int], int]]
    arrivals: list[float]

    @property
    def new_tokens(self) -> int:
        """Of all answers."""
        return sum(wanted for _, wanted in self.requests)


def mixed_traffic(count: int, vocab_size: int, rate: float | None) -> Traffic:
    """Prompts of 50 to 500 tokens, answers of 10 to 200; Poisson arrivals at `rate` a second, None: all at once."""
    chance = random.Random("mixed")
    requests = [
        ([chance.randrange(vocab_size) for _ in range(chance.randint(50, 500))], chance.randint(10, 200))
        for _ in range(count)
    ]
    arrivals, at = [0.0] * count, 0.0
    if rate is not None:
        for number in range(count):
            at += chance.expovariate(rate)
            arrivals[number] = at
    return Traffic(requests, arrivals)
