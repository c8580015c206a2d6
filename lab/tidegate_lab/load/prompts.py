"""Prompts of a wanted length that share no beginning, so that a prefix cache does not answer for the model."""

from __future__ import annotations

import random

TEMPLATE_TOKENS = 40
"""What the chat template and the closing question add, about; the report tells the real number from `usage`."""
WORDS = (
    "river", "stone", "light", "garden", "winter", "music", "paper", "silver", "bridge", "market", "forest", "window",
    "letter", "ocean", "planet", "kitchen", "doctor", "summer", "engine", "village", "mirror", "shadow", "castle",
    "blanket", "dragon", "orange", "valley", "signal", "teacher", "candle", "desert", "copper", "island", "rocket",
)  # fmt: skip
"""Each one token of most vocabularies when it follows a space."""


def prompt(seed: int, number: int, tokens: int) -> str:
    """The text of request `number`: about `tokens` tokens with the chat template around it."""
    source = random.Random(f"{seed}/{number}")
    words = " ".join(source.choices(WORDS, k=max(1, tokens - TEMPLATE_TOKENS)))
    return f"{words}. Write a long story with these words."
