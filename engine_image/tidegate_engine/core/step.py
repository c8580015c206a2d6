"""What a step is made of, what bounds it, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from tidegate_engine.core.request import FinishReason
from tidegate_engine.core.sequence import Scored


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step and a request."""

    max_model_len: int
    """Tokens of prompt and answer together."""
    token_budget: int
    """Tokens computed in a step."""
    slots: int
    """Requests running at a time."""
    prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """One request's share of a step: compute `token_ids` from position `start`, and sample after them if `samples`.

    The last `drafts` of the tokens are guesses. A part that samples has a row of logits for its last known token and
    one for each guess.
    """

    id: int
    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    samples: bool
    scored: Scored | None = None
    embeds: bool = False
    """Whether the last row's hidden state is wanted."""
    drafts: int = 0
    adapter: int = 0

    @property
    def num_rows(self) -> int:
        """Rows of logits that are sampled."""
        return self.drafts + 1 if self.samples else 0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A step. What ran already comes first, then what was admitted, each in order of turn; rows of logits are those of
    the parts with `samples`, in the same order.
    """

    work: tuple[Work, ...]
    preempted: tuple[int, ...] = ()
    """Requests that gave up their blocks for it, and wait again."""

    @property
    def num_tokens(self) -> int:
        """Tokens this step computes."""
        return sum(len(part.token_ids) for part in self.work)


@dataclass(frozen=True, slots=True)
class Decoding:
    """A running request that needs one token computed, and so may have the following ones guessed."""

    id: int
    tokens: Ordered[int]
    """Prompt and answer so far: the scheduler's own list, to be read before the next call and never changed."""
    room: int
    """Guesses that could become part of the answer: with them and one token more it is as long as it may be."""


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """New tokens of one request; `cached_tokens` is told in the first, `finish_reason` in the last."""

    id: int
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    cached_tokens: int


@dataclass(slots=True)
class Totals:
    """Counts since start."""

    preemptions: int = 0
    prompt_tokens: int = 0
    """Prompt tokens computed for the first time."""
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafts: int = 0
    """Times that a request had tokens guessed."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: list[int] = field(default_factory=list)
    """How often the first, second, ... guess in a row came true."""

    def count_draft(self, guessed: int, accepted: int) -> None:
        """Take note of a checked draft."""
        self.drafts += 1
        self.draft_tokens += guessed
        self.accepted_tokens += accepted
        self.accepted_by_position += [0] * (guessed - len(self.accepted_by_position))
        for position in range(accepted):
            self.accepted_by_position[position] += 1
