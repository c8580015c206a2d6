"""Text to token ids: one prompt or several, as text or as ids, without keeping streams of others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.tokenizer import Tokenizer

_LONG_TEXT = 16384
"""Characters. Longer texts are tokenized in a thread."""


async def encoded(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """The text's token ids."""
    if len(text) > _LONG_TEXT:
        return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens)
    return tokenizer.encode(text, add_special_tokens)


async def token_ids(
    field: str, given: str | Sequence[str | int | Sequence[int]], tokenizer: Tokenizer
) -> list[tuple[str, list[int]]]:
    """Each prompt's ids with the name that an error about it should give; raises InvalidRequest for a mixed list."""
    prompts = _each(field, given)
    return [
        (
            field if len(prompts) == 1 else f"{field}[{position}]",
            await encoded(tokenizer, prompt, True) if isinstance(prompt, str) else list(prompt),
        )
        for position, prompt in enumerate(prompts)
    ]


def _each(field: str, given: str | Sequence[str | int | Sequence[int]]) -> Sequence[str | Sequence[int]]:
    """One prompt a list entry, whichever of the four shapes they came in."""
    if isinstance(given, str):
        return [given]
    ids = [entry for entry in given if isinstance(entry, int)]
    if len(ids) == len(given):
        return [ids]
    prompts = [entry for entry in given if not isinstance(entry, int)]
    if len(prompts) != len(given) or len({type(entry) for entry in prompts}) != 1:
        raise InvalidRequest(
            f"{field}: a list that mixes text and token ids; give a text, a list of texts, a list of ids, or a list of "
            "such lists",
            param=field,
        )
    return prompts
