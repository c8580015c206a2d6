"""The engine of one pod: requests in, tokens out, a step at a time. In-process, so that tests can drive it."""

from __future__ import annotations

import logging
import time

from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import FinishReason
from tidegate_engine.core.scheduler import Batch, Limits, RequestRefused, Scheduler
from tidegate_engine.link.messages import Abort, Drafts, Event, Output, Stats, Submit, TokenLogprobs
from tidegate_engine.runtime.constraints import Constraint
from tidegate_engine.runtime.ranks import Ranks
from tidegate_engine.runtime.sampler import Sampled, Sampler
from tidegate_engine.runtime.speculation import Speculation
from tidegate_engine.runtime.step_model import StepModel
from tidegate_engine.runtime.trace import Trace

log = logging.getLogger(__name__)


class Engine:
    """Scheduler, ranks and sampler. `submit` and `abort` between steps, `step` while `has_work`."""

    def __init__(
        self,
        pool: BlockPool,
        limits: Limits,
        vocab_size: int,
        ranks: Ranks,
        sampler: Sampler,
        speculation: Speculation | None = None,
    ) -> None:
        self.scheduler = Scheduler(pool, limits)
        self._vocab_size = vocab_size
        self._ranks = ranks
        self._sampler = sampler
        self._speculation = speculation
        self._step_model = StepModel()
        self._trace = Trace()
        self._scores: dict[int, list[TokenLogprobs]] = {}
        """What is known of prompts that are to be scored and have no output yet."""
        self._steps = 0
        self._last_step = 0.0
        self._slowest_step = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return self.scheduler.has_work

    def submit(self, request: Submit, constraint: Constraint | None = None) -> None:
        """Queue a request, with the state of its grammar where it has one.

        Raises RequestRefused for one that could never run, or that names tokens there are not.
        """
        params = request.params
        for name, ids in (
            ("prompt", request.prompt),
            ("logit_bias", params.logit_bias),
            ("stop_token_ids", params.stop_token_ids),
        ):
            wrong = next((token for token in ids if not 0 <= token < self._vocab_size), None)
            if wrong is not None:
                raise RequestRefused(f"{name}: token {wrong} is not in the vocabulary of {self._vocab_size}")
        for name, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
            if count is not None and not 0 <= count <= self._vocab_size:
                raise RequestRefused(f"{name} {count}: ask for 0 to {self._vocab_size}")
        self.scheduler.add(request.id, request.prompt, params, request.priority)
        self._sampler.add(request.id, request.prompt, params, constraint)
        self._trace.begin(request)
        if params.prompt_logprobs is not None:
            self._scores[request.id] = []
        self._ranks.hear(request)

    def abort(self, abort: Abort) -> None:
        """End requests without a word."""
        self.scheduler.abort(abort.ids)
        for id in abort.ids:
            self._forget(id)
        self._ranks.hear(abort)

    def step(self) -> list[Output]:
        """Guess, schedule, run, commit. Nothing where there is no work."""
        began = time.monotonic()
        drafts: dict[int, list[int]] = {}
        if self._speculation is not None:
            drafts = self._speculation.propose(self.scheduler.decoding(), self._step_model.cost)
        guessed = time.monotonic()
        batch = self.scheduler.schedule(drafts)
        if batch is None:
            return []
        self._trace.step(batch, self._steps + 1, began)
        sampled, readout = self._ranks.run(batch, drafts)
        self._learn(batch, sampled, time.monotonic() - guessed)
        for id, scores in readout.scores.items():
            if id in self._scores:
                self._scores[id] += scores
        rows = (part.id for part in batch.work if part.samples)
        logprobs = dict(zip(rows, sampled.logprobs, strict=True))
        outputs: list[Output] = []
        for output in self.scheduler.commit(batch, sampled.tokens):
            known = logprobs[output.id]
            outputs.append(
                Output(
                    output.id,
                    list(output.tokens),
                    None if known is None else known[: len(output.tokens)],
                    output.finish_reason,
                    output.cached_tokens,
                    self._scores.pop(output.id, None),
                    readout.embeddings.get(output.id),
                )
            )
            if output.finish_reason is None:
                self._sampler.heard(output.id, output.tokens)
            else:
                self._forget(output.id)
        outputs += self._end_broken()
        self._steps += 1
        self._last_step = time.monotonic() - began
        self._slowest_step = max(self._slowest_step, self._last_step)
        return outputs

    def _end_broken(self) -> list[Output]:
        """End what has a grammar that cannot go on; what was said of it so far is out."""
        broken = self._sampler.broken
        for id, reason in broken.items():
            log.warning("request %d ends here: %s", id, reason)
        if broken:
            self.abort(Abort(list(broken)))
        return [Output(id, [], None, FinishReason.ABORT) for id in broken]

    def take_events(self) -> list[Event]:
        """What the steps since the last call did to prompts, for whoever wants to know where a request's time went."""
        return self._trace.take()

    def _learn(self, batch: Batch, sampled: Sampled, seconds: float) -> None:
        if self._speculation is not None:
            self._speculation.learn(batch, sampled.tokens, seconds, self._step_model.cost)
        kv_tokens = sum(part.start + len(part.token_ids) for part in batch.work)
        self._step_model.observe(batch.num_tokens, kv_tokens, seconds)

    def _forget(self, id: int) -> None:
        self._sampler.remove(id)
        if self._speculation is not None:
            self._speculation.forget(id)
        self._trace.end(id)
        self._scores.pop(id, None)

    def stats(self) -> Stats:
        """Gauges and totals as they are now."""
        totals = self.scheduler.totals
        return Stats(
            running=self.scheduler.num_running,
            waiting=self.scheduler.num_waiting,
            kv_blocks_used=self.scheduler.pool.num_used,
            steps=self._steps,
            preemptions=totals.preemptions,
            prompt_tokens=totals.prompt_tokens,
            cached_tokens=totals.cached_tokens,
            generated_tokens=totals.generated_tokens,
            last_step_seconds=self._last_step,
            slowest_step_seconds=self._slowest_step,
            step_cost=self._step_model.cost,
            drafts=Drafts(
                totals.drafts, totals.draft_tokens, totals.accepted_tokens, list(totals.accepted_by_position)
            ),
        )
