"""Log probabilities in the shapes of the two endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate_engine.link.messages import TokenLogprobs
from tidegate_engine.server.answers import Choice, Delta, TokenRecord
from tidegate_engine.server.detokenizer import Detokenizer
from tidegate_engine.server.responses import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from tidegate_engine.server.tokenizer import Tokenizer

_LOWEST = -9999.0
"""JSON has no minus infinity, which is what a token that bias has forbidden gets."""


def chat_logprobs(tokenizer: Tokenizer, delta: Delta) -> ChatLogprobs:
    """With `bytes`, since a token may be half a character."""
    return ChatLogprobs([_chat_token(tokenizer, record) for record in delta.records])


def _chat_token(tokenizer: Tokenizer, record: TokenRecord) -> TokenLogprob:
    found = record.logprobs
    top = [
        TopLogprob(_text(tokenizer, token), max(_LOWEST, logprob), list(tokenizer.bytes_of(token)))
        for token, logprob in zip(found.top_ids, found.top, strict=True)
    ]
    own = list(tokenizer.bytes_of(record.token))
    return TokenLogprob(_text(tokenizer, record.token), max(_LOWEST, found.chosen), own, top)


def completion_logprobs(
    tokenizer: Tokenizer, wanted: int, records: Sequence[TokenRecord], before: Echo | None, first: bool
) -> CompletionLogprobs:
    """Half a character reads `bytes:\\xe2`, as OpenAI writes it, so that names stay distinct.

    `before` is the prompt where it is repeated; its tokens are listed where the records are the `first` of the answer.
    """
    offsets = [record.start + (before.length if before else 0) for record in records]
    tokens = [record.token for record in records]
    found: list[TokenLogprobs | None] = [record.logprobs for record in records]
    if before is not None and first:
        offsets, tokens, found = before.offsets + offsets, before.tokens + tokens, before.logprobs + found
    return CompletionLogprobs(
        text_offset=offsets,
        token_logprobs=[None if one is None else max(_LOWEST, one.chosen) for one in found],
        tokens=[_distinct(tokenizer, token) for token in tokens],
        top_logprobs=[None if one is None else _named(tokenizer, one) for one in found] if wanted else None,
    )


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that is repeated before its answer; nothing says how likely its first token was."""

    tokens: list[int]
    offsets: list[int]
    """Where each token's text begins."""
    length: int
    """Characters of the whole."""
    logprobs: list[TokenLogprobs | None]

    @classmethod
    def of(cls, choice: Choice, tokenizer: Tokenizer) -> Echo:
        """The prompt of a choice that has its first output."""
        text, length, offsets = Detokenizer(tokenizer.token_bytes), 0, []
        for token in choice.prompt:
            offsets.append(length)
            length += len(text.push(token))
        return cls(choice.prompt, offsets, length, [None, *(choice.prompt_logprobs or ())])


def _named(tokenizer: Tokenizer, found: TokenLogprobs) -> dict[str, float]:
    return {
        _distinct(tokenizer, token): max(_LOWEST, logprob)
        for token, logprob in zip(found.top_ids, found.top, strict=True)
    }


def _text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.bytes_of(token).decode("utf-8", "replace")


def _distinct(tokenizer: Tokenizer, token: int) -> str:
    raw = tokenizer.bytes_of(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
