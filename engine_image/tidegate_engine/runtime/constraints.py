"""What one answer may still say: the state of a grammar, in the terms of the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from tidegate_engine.kernels.bitmask import forbid


class ConstraintBroken(Exception):
    """The grammar cannot go on, since it hit its limits; the answer ends here, and is not what was asked for."""


class Matcher(Protocol):
    """The part of llguidance.LLMatcher that is used here; it raises nothing, and has an error instead."""

    def unsafe_compute_mask_ptr(self, trg_pointer: int, trg_byte_size: int) -> None: ...
    def try_consume_tokens(self, tokens: list[int]) -> int: ...
    def rollback(self, num_tokens: int) -> bool: ...
    def deep_copy(self) -> Matcher: ...
    def is_error(self) -> bool: ...
    def get_error(self) -> str: ...


class Constraint:
    """A grammar with the tokens it has taken. End tokens are allowed exactly where the grammar may end; none is taken.

    For speculation: `mask` takes guesses ahead and leaves the state alone, `rollback` takes tokens back.
    """

    def __init__(self, matcher: Matcher, vocab_size: int) -> None:
        self._matcher = matcher
        self.words = -(-vocab_size // 32)
        """int32 words of a mask."""

    def mask(self, row: torch.Tensor, ahead: Sequence[int] = ()) -> bool:
        """Write into `row` (int32 [words], on the CPU) which tokens may follow what was taken and then `ahead`.

        False, and the row is left as it was, where `ahead` is not allowed or holds an end token: such a guess is never
        accepted, or is the last, so what would follow it does not matter. Raises ConstraintBroken.
        """
        guesses = list(ahead)
        taken = self._matcher.try_consume_tokens(guesses) if guesses else 0
        try:
            self._check()
            if taken < len(guesses):
                return False
            self._matcher.unsafe_compute_mask_ptr(row.data_ptr(), self.words * 4)
            self._check()
        finally:
            if taken:
                self._matcher.rollback(taken)
        return True

    def advance(self, tokens: Sequence[int]) -> None:
        """Take tokens that were said. Raises ConstraintBroken, also for one that was not allowed."""
        said = list(tokens)
        taken = self._matcher.try_consume_tokens(said)
        self._check()
        if taken < len(said):
            raise ConstraintBroken(f"token {said[taken]} does not fit the grammar")

    def rollback(self, count: int) -> None:
        """Take the last `count` tokens back. Raises ConstraintBroken."""
        if count and not self._matcher.rollback(count):
            self._check()
            raise ConstraintBroken(f"{count} tokens cannot be taken back")

    def fork(self) -> Constraint:
        """Another answer from the same state on; they share nothing."""
        return Constraint(self._matcher.deep_copy(), self.words * 32)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintBroken((self._matcher.get_error().splitlines() or ["no reason given"])[0])


@dataclass(frozen=True, slots=True)
class Wanted:
    """One row of logits whose token a grammar decides on."""

    row: int
    id: int
    constraint: Constraint
    ahead: Sequence[int] = ()
    """Guesses that this row assumes were said."""
    held_back: tuple[int, ...] = ()
    """Tokens that are not wanted yet, unless the grammar allows no other."""


def constrain(logits: torch.Tensor, wanted: Sequence[Wanted]) -> dict[int, str]:
    """Forbid in place, in logits float32 [S, V], what the grammars do not allow; by id, why one of them broke.

    A row whose grammar broke is left as it was: no token of it may be used.
    """
    broken: dict[int, str] = {}
    rows: list[int] = []
    masks: list[torch.Tensor] = []
    for want in wanted:
        mask = torch.empty(want.constraint.words, dtype=torch.int32)
        try:
            matters = want.constraint.mask(mask, want.ahead)
        except ConstraintBroken as error:
            broken[want.id] = str(error)
            continue
        if matters:
            rows.append(want.row)
            masks.append(_without(mask, want.held_back) if want.held_back else mask)
    if masks:
        device = logits.device
        forbid(logits, torch.tensor(rows, dtype=torch.int64, device=device), torch.stack(masks).to(device))
    return broken


def _without(mask: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    left = mask.clone()
    for token in tokens:
        # One bit of an int32: the highest makes it negative.
        bit = 1 << token % 32
        left[token // 32] &= ~(bit - 2**32 if bit == 2**31 else bit)
    return left if bool(left.any()) else mask
