"""Tokens to text as they come: whole characters only, and never the beginning of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Turns tokens into text; the bytes of half a character wait for the rest, and are dropped if none comes.

    Bytes that can never become UTF-8 read as U+FFFD, as `bytes.decode(errors="replace")` reads them.
    """

    __slots__ = ("_decoder", "_token_bytes")

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; empty for ids that the tokenizer has no text for."""
        if token >= len(self._token_bytes):
            return ""
        return self._decoder.decode(self._token_bytes[token])


class StopMatcher:
    """Holds back only what may yet become a stop string; the match that ends first wins, however the text was cut."""

    __slots__ = ("_held", "_include", "_stops", "matched")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        self.matched = False

    def push(self, text: str) -> str:
        """Text that is safe to send; once `matched` is true there is no more."""
        if not self._stops:
            return text
        text = self._held + text
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            end, start = min(found)
            self.matched = True
            self._held = ""
            return text[: end if self._include else start]
        keep = max(_longest_beginning_at_end(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, now that nothing can follow it."""
        held, self._held = self._held, ""
        return held


def _longest_beginning_at_end(text: str, stop: str) -> int:
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
