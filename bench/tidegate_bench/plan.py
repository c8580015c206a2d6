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
