"""Block pool and scheduler as a state machine, with a model that can tell a poisoned cache from a sound one.

The model of these tests writes into each cache slot a digest of the whole prefix that ends there, derived from the slot
before it as the block table has it, exactly as keys and values derive from all before them. Its next token is read from
the last slot. So a block shared wrongly, freed early, or published before it was written changes the tokens; so does
a guess that stays after it was found wrong.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prefix_model import START, STOP_TOKEN, VOCABULARY, after, expected_answer, next_token
from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.scheduler import Batch, Limits, RequestOutput, RequestRefused, Scheduler, Work


@dataclass
class Asked:
    prompt: list[int]
    params: SamplingParams
    turn: tuple[int, int]
    answer: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    aborted: bool = False
    scored: list[int] = field(default_factory=list)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(1, 12),
        block_size=st.integers(1, 4),
        budget=st.integers(1, 9),
        slots=st.integers(1, 4),
        caching=st.booleans(),
    )
    def start(self, num_blocks: int, block_size: int, budget: int, slots: int, caching: bool) -> None:
        self.block_size = block_size
        self.limits = Limits(max_model_len=24, token_budget=budget, slots=slots, prefix_caching=caching)
        self.scheduler = Scheduler(BlockPool(num_blocks, block_size, b"key"), self.limits)
        self.cache: list[bytes] = [b"never written"] * (num_blocks * block_size)
        self.asked: dict[int, Asked] = {}
        self.batch: Batch | None = None
        self.next_id = 0
        self.running: set[int] = set()

    @rule(
        beginning=st.integers(0, 2),
        rest=st.lists(st.integers(0, VOCABULARY - 1), max_size=6),
        max_tokens=st.integers(1, 8),
        ignore_eos=st.booleans(),
        min_tokens=st.integers(0, 3),
        priority=st.sampled_from([-1, 0, 0, 0, 1]),
        prompt_logprobs=st.sampled_from([None, None, 0]),
    )
    def add(
        self,
        beginning: int,
        rest: list[int],
        max_tokens: int,
        ignore_eos: bool,
        min_tokens: int,
        priority: int,
        prompt_logprobs: int | None,
    ) -> None:
        prompt = [[], [0] * 8, [1, 0, 2, 0, 1]][beginning] + rest
        params = SamplingParams(
            max_tokens=max_tokens,
            stop_token_ids=(STOP_TOKEN,),
            ignore_eos=ignore_eos,
            min_tokens=min_tokens,
            prompt_logprobs=prompt_logprobs,
        )
        pool = self.scheduler.pool
        total = len(prompt) + max_tokens
        possible = prompt and total <= 24 and pool.blocks_for(total - 1) <= pool.num_blocks
        try:
            self.scheduler.add(self.next_id, prompt, params, priority)
        except RequestRefused:
            assert not possible
            return
        assert possible
        self.asked[self.next_id] = Asked(prompt, params, (priority, self.next_id))
        self.next_id += 1

    @precondition(lambda self: self.batch is None)
    @rule(right=st.lists(st.integers(0, 5), max_size=4), wrong=st.integers(0, 3), trimmed=st.booleans())
    def schedule(self, right: list[int], wrong: int, trimmed: bool) -> None:
        """Each running request in turn has so many guesses that will come true, then so many of chance."""
        unfinished = [id for id, asked in self.asked.items() if asked.reason is None and not asked.aborted]
        before = self.scheduler.totals.preemptions
        drafts: dict[int, list[int]] = {}
        for place, decoding in enumerate(self.scheduler.decoding()):
            asked = self.asked[decoding.id]
            assert list(decoding.tokens) == asked.prompt + asked.answer
            assert decoding.room == asked.params.max_tokens - len(asked.answer) - 1
            told = expected_answer(asked.prompt, replace(asked.params, ignore_eos=True))[0][len(asked.answer) :]
            guesses = told[: right[place] if place < len(right) else 0] + [(place + self.next_id) % VOCABULARY] * wrong
            drafts[decoding.id] = guesses[: decoding.room] if trimmed else guesses
        without = self.step_without_drafts() if any(drafts.values()) else None
        self.batch = self.scheduler.schedule(drafts)
        assert (self.batch is None) == (not unfinished)
        if self.batch is None:
            return
        found = ([(part.id, part.start, len(part.token_ids) - part.drafts) for part in self.batch.work],
                 self.scheduler.totals.preemptions - before)  # fmt: skip
        assert without in (None, found), "a guess changes nothing else of a step"
        for part in self.batch.work:
            assert list(part.token_ids[len(part.token_ids) - part.drafts :]) == drafts.get(part.id, [])[: part.drafts]
        assert self.batch.num_tokens <= self.limits.token_budget
        ids = [work.id for work in self.batch.work]
        assert len(ids) == len(set(ids))
        ran = [id for id in ids if id in self.running]
        admitted = ids[len(ran) :]
        assert ids[: len(ran)] == ran
        for group in (ran, admitted):
            turns = [self.asked[id].turn for id in group]
            assert turns == sorted(turns), "running ones first, then admitted ones, each in its turn"
        self.running = (self.running | set(admitted)) - set(self.batch.preempted)
        passed_over = [self.asked[id].turn for id in unfinished if id not in self.running]
        assert not admitted or max(self.asked[id].turn for id in admitted) < min(passed_over, default=(9, 0))
        assert not (self.batch.preempted and admitted), "nothing is admitted where something had to give way"
        assert all(work.token_ids for work in self.batch.work)

    @precondition(lambda self: self.batch is not None)
    @rule(dropped=st.integers(0, 15))
    def commit(self, dropped: int) -> None:
        assert self.batch is not None
        written = list(self.cache)
        sampled: list[list[int]] = []
        for work in self.batch.work:
            states = self.compute(work, written)
            if work.samples:
                drop = dropped == len(sampled)
                sampled.append([] if drop else self.choose(work, states))
        self.cache = written
        outputs = self.scheduler.commit(self.batch, sampled)
        self.batch = None
        self.hear(outputs)

    def compute(self, work: Work, written: list[bytes]) -> list[bytes]:
        """Write this part's slots; what was there before the step is read from before the step. States of its rows."""
        asked = self.asked[work.id]
        tokens = asked.prompt + asked.answer
        end = work.start + len(work.token_ids) - work.drafts
        assert list(work.token_ids[: end - work.start]) == tokens[work.start : end]
        assert work.samples == (end == len(tokens))
        assert work.samples or not work.drafts
        assert work.drafts < max(1, asked.params.max_tokens - len(asked.answer))
        if work.scored is not None:
            first, last = work.scored.start, work.scored.start + len(work.scored.targets)
            assert work.start <= first < last <= end
            assert list(work.scored.targets) == asked.prompt[first + 1 : last + 1]
            asked.scored += range(first, last)
        states = [START if work.start == 0 else self.cache[self.slot(work, work.start - 1)]]
        for offset, token in enumerate(work.token_ids):
            states.append(after(states[-1], token))
            written[self.slot(work, work.start + offset)] = states[-1]
        return states[-1 - work.drafts :]

    def choose(self, work: Work, states: list[bytes]) -> list[int]:
        """The guesses that are what the model says, and the token after them."""
        guesses = work.token_ids[len(work.token_ids) - work.drafts :]
        said: list[int] = []
        for place, state in enumerate(states):
            said.append(next_token(state))
            if place == len(guesses) or guesses[place] != said[-1]:
                break
        return said

    def step_without_drafts(self) -> tuple[list[tuple[int, int, int]], int]:
        """What a copy of the scheduler does when nothing is guessed: its work, and how many it preempts."""
        other = copy.deepcopy(self.scheduler)
        batch = other.schedule()
        work = [] if batch is None else [(part.id, part.start, len(part.token_ids)) for part in batch.work]
        return work, other.totals.preemptions - self.scheduler.totals.preemptions

    def slot(self, work: Work, position: int) -> int:
        return work.block_table[position // self.block_size] * self.block_size + position % self.block_size

    def hear(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            asked = self.asked[output.id]
            assert not asked.aborted and asked.reason is None, "nothing is heard of a request after its end"
            assert output.cached_tokens <= (len(asked.prompt) - 1 if not asked.answer else 0)
            scored = [] if asked.params.prompt_logprobs is None else list(range(len(asked.prompt) - 1))
            assert asked.scored == scored, "every token of a prompt but the first is scored once, before the answer"
            asked.answer += output.tokens
            asked.reason = output.finish_reason
            expected, reason = expected_answer(asked.prompt, asked.params)
            assert asked.answer == expected[: len(asked.answer)]
            assert (asked.reason is not None) == (asked.answer == expected)
            assert asked.reason in (None, reason)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        assume(self.asked)
        id = data.draw(st.sampled_from(list(self.asked)))
        self.scheduler.abort([id, id, 10**6])
        if self.asked[id].reason is None:
            self.asked[id].aborted = True

    @invariant()
    def holds_together(self) -> None:
        self.scheduler.check_integrity()

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(5000):
            if self.batch is None:
                self.schedule(right=[2, 0, 1], wrong=1, trimmed=True)
            if self.batch is None:
                break
            self.commit(dropped=-1)
            self.scheduler.check_integrity()
        assert not self.scheduler.has_work
        assert self.scheduler.pool.num_used == 0
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0
        for asked in self.asked.values():
            assert asked.aborted != (asked.reason is not None), "every request ends exactly once"
        totals = self.scheduler.totals
        assert totals.generated_tokens == sum(len(asked.answer) for asked in self.asked.values())
        assert totals.accepted_tokens <= totals.draft_tokens
        assert totals.accepted_tokens == sum(totals.accepted_by_position)
        prompts = sum(len(asked.prompt) for asked in self.asked.values() if not asked.aborted)
        everything = sum(len(asked.prompt) for asked in self.asked.values())
        assert prompts <= totals.prompt_tokens + totals.cached_tokens <= everything


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=2000,
    stateful_step_count=24,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
