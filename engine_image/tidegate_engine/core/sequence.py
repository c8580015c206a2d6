"""A request's tokens and blocks, as the scheduler keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidegate_engine.core.blocks import ROOT, BlockPool
from tidegate_engine.core.request import FinishReason, SamplingParams

PENDING = -1
"""Stands for a token that the step in flight will sample, in a step that is made before it is known."""


class State(Enum):
    """Where a sequence is; it leaves by ENDED, once."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Scored:
    """Positions from `start` on of which a step is to tell how likely the tokens after them were."""

    start: int
    targets: tuple[int, ...]
    """The tokens that do follow, one a position."""
    top: int
    """How many of the likeliest tokens are wanted beside them."""


@dataclass(slots=True, eq=False)
class Sequence:
    """`num_computed` chases the number of tokens; what lies between is the work that is left."""

    id: int
    tokens: list[int]
    prompt_length: int
    params: SamplingParams
    turn: tuple[int, int]
    """Place in the queue, then number of arrival; the least goes first."""
    state: State = State.WAITING
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    num_published: int = 0
    """Blocks from the first on whose content the pool knows."""
    cached_tokens: int | None = None
    """Prompt tokens found in the cache at first admission; None before it."""
    most_computed: int = 0
    """The furthest `num_computed` has been; work below it is recomputation."""
    num_scored: int = 0
    """Prompt positions whose next token's probability has been asked of a step."""
    announced: bool = False
    """Whether an output has gone out."""
    digests: list[bytes] = field(default_factory=list)
    pending: bool = False
    """Whether the last token is not known yet: a step in flight samples it, and another computes it already."""
    num_ahead: int = 0
    """Tokens counted as computed that belong to the later of two steps in flight."""

    @property
    def num_generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def room(self) -> int:
        """Tokens that can still be sampled before the last."""
        return self.params.max_tokens - self.num_generated - 1

    def digest(self, index: int, pool: BlockPool) -> bytes:
        """The name of block `index`, which must be full of known tokens. Computed once: tokens never change."""
        size = pool.block_size
        while len(self.digests) <= index:
            start = len(self.digests) * size
            # What one adapter has computed is no use to another.
            root = ROOT if not self.params.adapter else self.params.adapter.to_bytes(4, "big")
            parent = self.digests[-1] if self.digests else root
            self.digests.append(pool.digest(parent, self.tokens[start : start + size]))
        return self.digests[index]

    def cached_blocks(self, pool: BlockPool) -> list[int]:
        """Blocks already computed for a beginning of these tokens; one token at least is left to compute.

        None where the prompt's probabilities are wanted: what is not computed cannot tell them.
        """
        found: list[int] = []
        if self.params.prompt_logprobs is not None and self.num_scored < self.prompt_length - 1:
            return found
        for index in range((len(self.tokens) - 1) // pool.block_size):
            block = pool.find(self.digest(index, pool))
            if block is None:
                break
            found.append(block)
        return found

    def score(self, start: int, end: int) -> Scored | None:
        """The positions from `start` up to `end` whose next token is of the prompt and was not asked for before."""
        top, start, end = self.params.prompt_logprobs, max(start, self.num_scored), min(end, self.prompt_length - 1)
        if top is None or start >= end:
            return None
        self.num_scored = end
        return Scored(start, tuple(self.tokens[start + 1 : end + 1]), top)

    def publish(self, pool: BlockPool) -> None:
        """Offer every full block whose keys and values are written."""
        while (self.num_published + 1) * pool.block_size <= self.num_computed - self.num_ahead:
            pool.publish(self.blocks[self.num_published], self.digest(self.num_published, pool))
            self.num_published += 1

    def shrink(self, pool: BlockPool) -> None:
        """Give back the blocks past those that are computed: what was taken for guesses that did not come true."""
        needed = pool.blocks_for(self.num_computed)
        pool.release(self.blocks[needed:])
        del self.blocks[needed:]

    def let_go(self, pool: BlockPool) -> None:
        """Give the blocks back; the tokens stay, to be computed again or never."""
        pool.release(self.blocks)
        self.blocks = []
        self.num_computed = 0
        self.num_ahead = 0
        self.num_published = 0

    def expect(self) -> None:
        """Make room for the token that a step in flight samples."""
        self.tokens.append(PENDING)
        self.pending = True

    def append(self, token: int) -> FinishReason | None:
        """Take a sampled token; the reason to end with it, where there is one."""
        if self.pending:
            self.tokens[-1] = token
            self.pending = False
        else:
            self.tokens.append(token)
        params = self.params
        # Where a grammar lets nothing but its end follow, the sampler ends the answer below `min_tokens`.
        early = self.num_generated <= params.min_tokens and params.grammar is None
        if token in params.stop_token_ids and not params.ignore_eos and not early:
            return FinishReason.STOP
        if self.num_generated >= params.max_tokens:
            return FinishReason.LENGTH
        return None
