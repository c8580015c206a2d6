"""A vocabulary of one token a byte, and grammars over it, for tests of what an answer may say."""

from __future__ import annotations

import json
from typing import Any

import torch
from llguidance import LLMatcher
from tidegate_engine.link.messages import Vocabulary
from tidegate_engine.runtime.constraints import Constraint
from tidegate_engine.runtime.matching import MatcherFactory

END, OTHER_END = 256, 257
SIZE = 260
"""Two ids more than the tokenizer has, as in models whose embedding is padded."""
VOCABULARY = Vocabulary(
    [bytes([byte]) for byte in range(256)] + [b"<end>", b"<over>"], [END, OTHER_END], [END, OTHER_END]
)


def regex(pattern: str) -> str:
    return LLMatcher.grammar_from_regex(pattern)


def schema(wanted: dict[str, Any]) -> str:
    return LLMatcher.grammar_from_json_schema(json.dumps(wanted), overrides={"whitespace_flexible": False})


def constraint(grammar: str) -> Constraint:
    return Constraint(MatcherFactory(VOCABULARY, SIZE).matcher(grammar), SIZE)


def allowed(state: Constraint, ahead: str = "") -> str:
    """The characters that may follow, and `$` for each end token."""
    mask = torch.zeros(state.words, dtype=torch.int32)
    if not state.mask(mask, list(ahead.encode())):
        return "no such guess"
    tokens = [32 * word + bit for word, value in enumerate(mask.tolist()) for bit in range(32) if value >> bit & 1]
    return "".join("$" if token in VOCABULARY.ends else chr(token) for token in tokens)
