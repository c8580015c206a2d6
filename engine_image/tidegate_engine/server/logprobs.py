"""Log probabilities in the shapes of the two endpoints."""

from __future__ import annotations

from tidegate_engine.server.answers import Delta, TokenRecord
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


def completion_logprobs(tokenizer: Tokenizer, delta: Delta) -> CompletionLogprobs:
    """Half a character reads `bytes:\\xe2`, as OpenAI writes it, so that names stay distinct."""
    top = [
        {
            _distinct(tokenizer, token): max(_LOWEST, logprob)
            for token, logprob in zip(record.logprobs.top_ids, record.logprobs.top, strict=True)
        }
        for record in delta.records
    ]
    wanted = delta.choice.params.logprobs
    return CompletionLogprobs(
        text_offset=[record.start for record in delta.records],
        token_logprobs=[max(_LOWEST, record.logprobs.chosen) for record in delta.records],
        tokens=[_distinct(tokenizer, record.token) for record in delta.records],
        top_logprobs=top if wanted else None,
    )


def _text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.bytes_of(token).decode("utf-8", "replace")


def _distinct(tokenizer: Tokenizer, token: int) -> str:
    raw = tokenizer.bytes_of(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
