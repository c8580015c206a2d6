"""Steps made while one is in flight, as a state machine: the answers are those of a model without batches or cache.

As in test_scheduler_machine each cache slot gets a digest of the whole prefix that ends there. The device is a queue:
a step computes when it is launched, from what those before it have written, and takes a token that was not known from
what the step before has sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prefix_model import START, STOP_TOKEN, after, expected_answer, next_token
from tidegate_engine.core.blocks import BlockPool, IntegrityError
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.scheduler import Batch, Limits, RequestRefused, Scheduler
from tidegate_engine.core.sequence import PENDING


@dataclass
class Asked:
    prompt: list[int]
    params: SamplingParams
    answer: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    aborted: bool = False


@dataclass
class Flying:
    batch: Batch
    sampled: dict[int, int]


class AheadMachine(RuleBasedStateMachine):
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
        self.flying: list[Flying] = []
        self.next_id = 0

    @rule(
        beginning=st.integers(0, 2),
        rest=st.lists(st.integers(0, 2), min_size=1, max_size=6),
        max_tokens=st.integers(1, 8),
        ignore_eos=st.booleans(),
        min_tokens=st.integers(0, 3),
    )
    def add(self, beginning: int, rest: list[int], max_tokens: int, ignore_eos: bool, min_tokens: int) -> None:
        prompt = [[], [0] * 8, [1, 0, 2, 0, 1]][beginning] + rest
        params = SamplingParams(
            max_tokens=max_tokens, stop_token_ids=(STOP_TOKEN,), ignore_eos=ignore_eos, min_tokens=min_tokens
        )
        try:
            self.scheduler.add(self.next_id, prompt, params)
        except RequestRefused:
            return
        self.asked[self.next_id] = Asked(prompt, params)
        self.next_id += 1

    @precondition(lambda self: len(self.flying) < 2)
    @rule()
    def launch(self) -> None:
        batch = self.scheduler.schedule(ahead=bool(self.flying))
        if batch is None:
            return
        assert batch.num_tokens <= self.limits.token_budget
        written = list(self.cache)
        sampled: dict[int, int] = {}
        before = self.flying[-1].sampled if self.flying else {}
        for part in batch.work:
            asked = self.asked[part.id]
            known = asked.prompt + asked.answer
            state = START if part.start == 0 else self.cache[self.slot(part.block_table, part.start - 1)]
            for position, token in enumerate(part.token_ids, part.start):
                assert (token == PENDING) == (position == len(known)), "what has been heard is not asked for again"
                state = after(state, before[part.id] if token == PENDING else token)
                written[self.slot(part.block_table, position)] = state
            if part.samples:
                sampled[part.id] = next_token(state)
                assert len(asked.answer) + (part.id in before) < asked.params.max_tokens, "computed past its last"
        self.cache = written
        self.flying.append(Flying(batch, sampled))

    @precondition(lambda self: self.flying)
    @rule()
    def commit(self) -> None:
        done = self.flying.pop(0)
        tokens = [[done.sampled[part.id]] for part in done.batch.work if part.samples]
        for output in self.scheduler.commit(done.batch, tokens):
            asked = self.asked[output.id]
            assert not asked.aborted and asked.reason is None, "nothing is heard of a request after its end"
            asked.answer += output.tokens
            asked.reason = output.finish_reason
            expected, reason = expected_answer(asked.prompt, asked.params)
            assert asked.answer == expected[: len(asked.answer)]
            assert asked.reason == (reason if asked.answer == expected else None)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        assume(self.asked)
        id = data.draw(st.sampled_from(list(self.asked)))
        self.scheduler.abort([id])
        if self.asked[id].reason is None:
            self.asked[id].aborted = True

    def slot(self, table: Sequence[int], position: int) -> int:
        return table[position // self.block_size] * self.block_size + position % self.block_size

    @invariant()
    def holds_together(self) -> None:
        self.scheduler.check_integrity()

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(5000):
            if len(self.flying) < 2:
                self.launch()
            if not self.flying:
                break
            self.commit()
            self.scheduler.check_integrity()
        assert not self.scheduler.has_work
        assert self.scheduler.pool.num_used == 0
        for asked in self.asked.values():
            assert asked.aborted != (asked.reason is not None), "every request ends exactly once"


TestAheadMachine = AheadMachine.TestCase
TestAheadMachine.settings = settings(
    max_examples=1000,
    stateful_step_count=24,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_how_many_guesses_come_true_is_known_before_the_next_step() -> None:
    scheduler = Scheduler(BlockPool(8, 4, b"key"), Limits(24, 9, 2))
    scheduler.add(1, [0, 1], SamplingParams(8))
    first = scheduler.schedule()
    assert first is not None
    scheduler.commit(first, [[1]])
    scheduler.schedule({1: [2, 2]})
    with pytest.raises(IntegrityError, match="guesses"):
        scheduler.schedule(ahead=True)
