"""What the next step computes, by one idea: a request's `num_computed` chases its number of tokens.

Every step spends one token budget, running requests first, each in its turn. Chunked prefill, prefix hits, decoding
and recomputation after preemption are all this arithmetic. Source of the idea: vLLM's V1 scheduler.
A turn is the order of arrival, moved by priority: one level is worth `ARRIVALS_PER_LEVEL` places. So a less urgent
request waits for a bounded number of later ones and never for ever, and no clock is needed to say so.
Drafts (guesses of the next tokens, checked in the step that computes them) get what budget and blocks are left when all
else has its share: nobody waits, is cut short or preempted for a guess.
A step can be made ahead, while one is in flight: each request that samples there has a token to come, which PENDING
stands for. Whether it ends the request is heard later; then the step made ahead has computed it in vain.
The same calls in the same order give the same batches, so that every rank can run its own scheduler.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Ordered
from itertools import pairwise

from tidegate_engine.core.blocks import BlockPool, IntegrityError
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.sequence import Sequence, State
from tidegate_engine.core.step import Batch, Decoding, Limits, RequestOutput, Totals, Work

__all__ = ["Batch", "Decoding", "Limits", "RequestOutput", "RequestRefused", "Scheduler", "Totals", "Work"]

ARRIVALS_PER_LEVEL = 256
"""A request goes before those that came fewer places before it than this, and are one level less urgent."""


class RequestRefused(ValueError):
    """The request could never run here; the message names the value and the limit."""


class Scheduler:
    """Served by turn. When blocks run out, the last of the running requests gives up its own and waits again.

    A request that waits takes nothing from one that runs, however urgent it is.
    """

    def __init__(self, pool: BlockPool, limits: Limits) -> None:
        if limits.token_budget < 1 or limits.slots < 1 or limits.max_model_len < 1:
            raise ValueError(f"{limits} lets nothing run")
        self.pool = pool
        self.limits = limits
        self.totals = Totals()
        self._sequences: dict[int, Sequence] = {}
        self._arrivals = 0
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        """Both in order of turn."""
        self._preempted: list[int] = []
        self._in_flight: list[Batch] = []
        """The oldest first; two at most."""
        self._retiring: dict[int, Sequence] = {}

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that hold none."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._sequences)

    def add(self, id: int, prompt: Ordered[int], params: SamplingParams, priority: int = 0) -> None:
        """Queue a request, the sooner the lower its priority; raises RequestRefused, and then nothing has changed."""
        total = len(prompt) + params.max_tokens
        if id in self._sequences or id in self._retiring:
            raise RequestRefused(f"id {id}: is in use; every request needs its own")
        if not prompt:
            raise RequestRefused("prompt: is empty; give one token or more")
        if params.max_tokens < 1:
            raise RequestRefused(f"max_tokens {params.max_tokens}: ask for one token or more")
        if total > self.limits.max_model_len:
            raise RequestRefused(
                f"prompt of {len(prompt)} tokens and max_tokens {params.max_tokens}: "
                f"over max_model_len {self.limits.max_model_len}"
            )
        # The last token is never fed back, so its key and value take no room.
        if self.pool.blocks_for(total - 1) > self.pool.num_blocks:
            raise RequestRefused(
                f"prompt of {len(prompt)} tokens and max_tokens {params.max_tokens}: over the KV cache's "
                f"{self.pool.num_blocks * self.pool.block_size} tokens"
            )
        turn = (self._arrivals + priority * ARRIVALS_PER_LEVEL, self._arrivals)
        self._arrivals += 1
        sequence = Sequence(id, list(prompt), len(prompt), params, turn)
        self._sequences[id] = sequence
        insort(self._waiting, sequence, key=_turn)

    def abort(self, ids: Iterable[int]) -> None:
        """End requests without a word; ids that have ended already are no news."""
        for id in ids:
            sequence = self._sequences.get(id)
            if sequence is not None:
                self._end(sequence)

    def decoding(self) -> list[Decoding]:
        """Requests whose next tokens may be guessed, in order of turn."""
        return [
            Decoding(sequence.id, sequence.tokens, sequence.room)
            for sequence in self._running
            if sequence.num_computed == len(sequence.tokens) - 1 and sequence.room > 0
        ]

    def schedule(self, drafts: Mapping[int, Ordered[int]] | None = None, ahead: bool = False) -> Batch | None:
        """The next step, or None where nothing is left to do. A batch is committed before the next is made; only where
        it is made `ahead`, before the next but one.

        `drafts` are guesses of the next tokens by request; of those that do not fit, the beginning is taken, or none.
        """
        if len(self._in_flight) > ahead:
            raise IntegrityError("the batch in flight is not committed yet")
        in_flight = self._expect_tokens()
        budget = self.limits.token_budget
        self._preempted = []
        planned: list[tuple[Sequence, int]] = []
        index = 0
        while index < len(self._running) and budget > 0:
            sequence = self._running[index]
            count = min(len(sequence.tokens) - sequence.num_computed, budget)
            if count == 0:  # the token to come is its last
                index += 1
                continue
            if not self._make_room(sequence, count):
                break
            planned.append((sequence, self._advance(sequence, count)))
            sequence.num_ahead = count if sequence.id in in_flight else 0
            budget -= count
            index += 1
        if not self._preempted:
            while budget > 0 and self._waiting and len(self._running) < self.limits.slots:
                sequence = self._waiting[0]
                if not self._admit(sequence):
                    break
                count = min(len(sequence.tokens) - sequence.num_computed, budget)
                self._grow(sequence, count)
                planned.append((sequence, self._advance(sequence, count)))
                budget -= count
        if not planned:
            return None
        work: list[Work] = []
        for sequence, start in planned:
            guesses = self._guesses(sequence, (drafts or {}).get(sequence.id, ()), budget)
            budget -= len(guesses)
            work.append(self._work(sequence, start, guesses))
        batch = Batch(tuple(work), tuple(self._preempted))
        self._in_flight.append(batch)
        return batch

    def commit(self, batch: Batch, sampled: Ordered[Ordered[int]]) -> list[RequestOutput]:
        """Take a finished step's tokens: one list for each part that samples. None sampled: the last is done again.

        Of a part with drafts, the guesses that came true and one token after them. What ended while the batch was in
        flight gives its blocks back here, and is not heard of again.
        """
        if not self._in_flight or batch is not self._in_flight[0]:
            raise IntegrityError("this batch is not the one in flight")
        if len(sampled) != sum(part.samples for part in batch.work):
            raise IntegrityError(f"{len(sampled)} parts were sampled, which is not what the batch asked for")
        del self._in_flight[0]
        outputs: list[RequestOutput] = []
        rows = iter(sampled)
        for part in batch.work:
            tokens = next(rows) if part.samples else ()
            retired = self._retiring.get(part.id)
            sequence = self._sequences[part.id] if retired is None else retired
            if sequence.pending and len(tokens) != part.samples:
                raise IntegrityError(f"request {part.id} is computed ahead of a token, and {len(tokens)} were sampled")
            output = self._take(sequence, tokens) if tokens and retired is None else None
            if retired is not None and retired.pending and tokens:
                retired.append(tokens[0])
            self._settle(sequence, part, len(tokens), 0 if output is None else len(output.tokens))
            sequence.num_ahead = 0
            if retired is not None:
                if not self._flies(part.id):
                    del self._retiring[part.id]
                    retired.let_go(self.pool)
            elif output is not None:
                outputs.append(output)
                if output.finish_reason is not None:
                    self._end(sequence)
        return outputs

    def check_integrity(self) -> None:
        """Raise IntegrityError where requests and pool disagree. O(requests and blocks): for tests and idle moments."""
        self.pool.check_integrity()
        counts = [0] * self.pool.num_blocks
        for sequence in [*self._running, *self._waiting, *self._retiring.values()]:
            for block in sequence.blocks:
                counts[block] += 1
        if counts != self.pool.reference_counts():
            raise IntegrityError("blocks are held that are in no request's table, or the other way round")
        if len(self._running) > self.limits.slots:
            raise IntegrityError(f"{len(self._running)} requests run in {self.limits.slots} slots")
        if len(self._sequences) != len(self._running) + len(self._waiting):
            raise IntegrityError("a request is neither running nor waiting")
        for queue in (self._running, self._waiting):
            if any(before.turn >= after.turn for before, after in pairwise(queue)):
                raise IntegrityError("a queue is out of turn")
        for sequence in self._running:
            fits = sequence.num_computed <= len(sequence.blocks) * self.pool.block_size
            if sequence.state is not State.RUNNING or not fits or sequence.num_computed > len(sequence.tokens):
                raise IntegrityError(f"request {sequence.id} has computed more than it has room or tokens for")
        for sequence in self._waiting:
            if sequence.state is not State.WAITING or sequence.blocks or sequence.num_computed:
                raise IntegrityError(f"request {sequence.id} waits and holds blocks")

    def _expect_tokens(self) -> set[int]:
        """Give each request that the step in flight samples the place of its token; the requests of that step."""
        if not self._in_flight:
            return set()
        for part in self._in_flight[0].work:
            sequence = self._sequences.get(part.id)
            if part.drafts:
                raise IntegrityError("how many guesses come true must be known before the next step is made")
            if part.samples and sequence is not None and sequence.room > 0:
                sequence.expect()
        return {part.id for part in self._in_flight[0].work}

    def _flies(self, id: int) -> bool:
        return any(part.id == id for batch in self._in_flight for part in batch.work)

    def _make_room(self, sequence: Sequence, count: int) -> bool:
        """Find blocks for `count` more tokens, from the last in turn if need be; False where that was it."""
        missing = self.pool.blocks_for(sequence.num_computed + count) - len(sequence.blocks)
        while missing > self.pool.num_free:
            last = self._running.pop()
            last.let_go(self.pool)
            last.state = State.WAITING
            insort(self._waiting, last, key=_turn)
            self._preempted.append(last.id)
            self.totals.preemptions += 1
            if last is sequence:
                return False
        self._grow(sequence, count)
        return True

    def _admit(self, sequence: Sequence) -> bool:
        """Move the head of the queue to running, if all its tokens fit and every running request can grow by a block.

        Without that reserve a request would be admitted only to be preempted a few steps later, for ever.
        """
        hits = sequence.cached_blocks(self.pool) if self.limits.prefix_caching else []
        taken_from_free = sum(self.pool.is_free(block) for block in hits)
        needed = self.pool.blocks_for(len(sequence.tokens)) - len(hits) + taken_from_free
        if needed + len(self._running) > self.pool.num_free:
            return False
        for block in hits:
            self.pool.hold(block)
        sequence.blocks = hits
        sequence.num_published = len(hits)
        sequence.num_computed = len(hits) * self.pool.block_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.most_computed = sequence.num_computed
            self.totals.cached_tokens += sequence.num_computed
        sequence.state = State.RUNNING
        del self._waiting[0]
        insort(self._running, sequence, key=_turn)
        return True

    def _grow(self, sequence: Sequence, count: int) -> None:
        while len(sequence.blocks) < self.pool.blocks_for(sequence.num_computed + count):
            sequence.blocks.append(self.pool.allocate())

    def _advance(self, sequence: Sequence, count: int) -> int:
        """Count tokens as computed by the step that is being made; where they start."""
        start = sequence.num_computed
        sequence.num_computed += count
        return start

    def _guesses(self, sequence: Sequence, drafts: Ordered[int], budget: int) -> Ordered[int]:
        """As many of the guesses as can be checked in this step with blocks that nobody needs, which are taken."""
        if sequence.num_computed < len(sequence.tokens):
            return ()
        places = (len(sequence.blocks) + self.pool.num_free) * self.pool.block_size - sequence.num_computed
        guesses = drafts[: max(0, min(budget, sequence.room, places))]
        self._grow(sequence, len(guesses))
        return guesses

    def _work(self, sequence: Sequence, start: int, guesses: Ordered[int]) -> Work:
        tokens = (*sequence.tokens[start : sequence.num_computed], *guesses)
        samples = sequence.num_computed == len(sequence.tokens)
        return Work(
            sequence.id,
            start,
            tokens,
            tuple(sequence.blocks),
            samples,
            sequence.score(start, sequence.num_computed),
            embeds=samples and sequence.params.embed,
            drafts=len(guesses),
            adapter=sequence.params.adapter,
        )

    def _settle(self, sequence: Sequence, part: Work, sampled: int, kept: int) -> None:
        """Make `num_computed` what is known to be right, and share and give back blocks accordingly.

        The keys and values of guesses that came true are in their places; those of the others will be overwritten.
        """
        if part.samples and not sampled:
            sequence.num_computed -= 1
        if part.drafts:
            accepted = min(part.drafts, max(0, sampled - 1))
            self.totals.count_draft(part.drafts, accepted)
            sequence.num_computed += min(accepted, kept)
        self._count_prompt(sequence)
        if self.limits.prefix_caching:
            sequence.publish(self.pool)
        if part.drafts:
            sequence.shrink(self.pool)

    def _count_prompt(self, sequence: Sequence) -> None:
        reached = min(sequence.num_computed, sequence.prompt_length)
        self.totals.prompt_tokens += max(0, reached - sequence.most_computed)
        sequence.most_computed = max(sequence.most_computed, sequence.num_computed)

    def _take(self, sequence: Sequence, tokens: Ordered[int]) -> RequestOutput:
        kept: list[int] = []
        reason: FinishReason | None = None
        for token in tokens:
            kept.append(token)
            reason = sequence.append(token)
            if reason is not None:
                break
        if not sequence.params.embed:
            self.totals.generated_tokens += len(kept)
        cached = 0 if sequence.announced else sequence.cached_tokens or 0
        sequence.announced = True
        return RequestOutput(sequence.id, tuple(kept), reason, cached)

    def _end(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        if sequence.state is State.WAITING:
            self._waiting.remove(sequence)
        else:
            self._running.remove(sequence)
        sequence.state = State.ENDED
        if self._flies(sequence.id):
            self._retiring[sequence.id] = sequence
        else:
            sequence.let_go(self.pool)


def _turn(sequence: Sequence) -> tuple[int, int]:
    return sequence.turn
