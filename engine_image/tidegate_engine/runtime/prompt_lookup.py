"""Guesses from the text so far: what followed the last tokens when they stood there before.

Source: Saxena, "Prompt lookup decoding", 2023. Costs nothing but a look-up, and is right where an answer repeats its
prompt or itself: code that is edited, quotations, lists, tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate_engine.core.scheduler import Decoding

_PAIR = 2
"""Tokens that must be equal for a place to count."""
_PLACES = 8
"""The most recent places that are looked at."""
_LONGEST = 8
"""Tokens compared; of two places with as many equal ones the more recent is taken."""


@dataclass(slots=True)
class _Index:
    """Where each pair of neighbouring tokens is followed by something."""

    places: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """The position after each pair, ascending."""
    known: int = _PAIR
    """Positions from here on are not entered yet."""

    def extend(self, tokens: Sequence[int]) -> None:
        for at in range(self.known, len(tokens)):
            self.places.setdefault((tokens[at - 2], tokens[at - 1]), []).append(at)
        self.known = max(self.known, len(tokens))

    def find(self, tokens: Sequence[int]) -> int | None:
        """The position whose past is most like the end of the text."""
        best, longest = None, 0
        for place in reversed(self.places.get((tokens[-2], tokens[-1]), ())[-_PLACES:]):
            equal = _PAIR
            while equal < min(_LONGEST, place) and tokens[place - equal - 1] == tokens[-equal - 1]:
                equal += 1
            if equal > longest:
                best, longest = place, equal
        return best


class PromptLookup:
    """Keeps an index for each live request, that grows with its text."""

    def __init__(self) -> None:
        self._indices: dict[int, _Index] = {}

    def propose(self, wishes: Sequence[tuple[Decoding, int]]) -> dict[int, list[int]]:
        """For each request up to so many guesses; none where the text has nothing like its end."""
        found = {wish.id: self._guess(wish, depth) for wish, depth in wishes}
        return {id: guesses for id, guesses in found.items() if guesses}

    def forget(self, id: int) -> None:
        """A request is over; one that is not known is no news."""
        self._indices.pop(id, None)

    def _guess(self, wish: Decoding, depth: int) -> list[int]:
        tokens = wish.tokens
        if len(tokens) <= _PAIR:
            return []
        index = self._indices.setdefault(wish.id, _Index())
        index.extend(tokens)
        place = index.find(tokens)
        if place is None:
            return []
        guesses: list[int] = []
        for at in range(place, place + depth):
            # Past its end the text goes on as guessed: a period shorter than the guess repeats.
            guesses.append(tokens[at] if at < len(tokens) else guesses[at - len(tokens)])
        return guesses
