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


def lengths(seed: int, number: int, prompt_tokens: int, max_tokens: int, spread: float) -> tuple[int, int]:
    """How long prompt and answer of request `number` are to be: each even within `spread` of what is asked."""
    source = random.Random(f"{seed}/{number}/lengths")
    low, high = 1 - spread, 1 + spread
    prompt, answer = (max(1, round(mean * source.uniform(low, high))) for mean in (prompt_tokens, max_tokens))
    return prompt, answer
