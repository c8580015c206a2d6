"""The scheduler on timelines small enough to read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tidegate_engine.core.blocks import BlockPool, IntegrityError
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.scheduler import ARRIVALS_PER_LEVEL, Batch, Limits, RequestOutput, RequestRefused, Scheduler


def scheduler(
    num_blocks: int = 64, block_size: int = 4, max_model_len: int = 64, token_budget: int = 16, slots: int = 8
) -> Scheduler:
    return Scheduler(BlockPool(num_blocks, block_size, b"key"), Limits(max_model_len, token_budget, slots))


def scheduled(under_test: Scheduler) -> Batch:
    batch = under_test.schedule()
    assert batch is not None
    return batch


def step(under_test: Scheduler, token: int = 9) -> tuple[list[tuple[int, int, int]], list[RequestOutput]]:
    """Run one step in which everything samples `token`: what was computed as (id, start, count), and the outputs."""
    batch = scheduled(under_test)
    computed = [(work.id, work.start, len(work.token_ids)) for work in batch.work]
    outputs = under_test.commit(batch, [[token] for work in batch.work if work.samples])
    under_test.check_integrity()
    return computed, outputs


def tokens(length: int, first: int = 100) -> list[int]:
    return list(range(first, first + length))


def test_a_long_prompt_is_computed_in_chunks_while_others_go_on_decoding() -> None:
    under_test = scheduler(token_budget=8)
    under_test.add(1, tokens(3), SamplingParams(max_tokens=9))
    assert step(under_test)[0] == [(1, 0, 3)]
    under_test.add(2, tokens(12, first=500), SamplingParams(max_tokens=9))
    assert step(under_test)[0] == [(1, 3, 1), (2, 0, 7)]
    computed, outputs = step(under_test)
    assert computed == [(1, 4, 1), (2, 7, 5)]
    assert [output.id for output in outputs] == [1, 2]
    assert step(under_test)[0] == [(1, 5, 1), (2, 12, 1)]


def test_what_an_adapter_has_computed_is_cached_for_itself_alone() -> None:
    under_test = scheduler()
    for id, adapter, cached in ((1, 0, 0), (2, 1, 0), (3, 2, 0), (4, 1, 4), (5, 0, 4)):
        under_test.add(id, tokens(8), SamplingParams(max_tokens=1, adapter=adapter))
        batch = scheduled(under_test)
        assert [work.adapter for work in batch.work] == [adapter]
        [output] = under_test.commit(batch, [[9]])
        assert output.cached_tokens == cached


def test_a_prompt_that_hits_the_cache_entirely_still_computes_a_token() -> None:
    under_test = scheduler()
    for id in (1, 2):
        under_test.add(id, tokens(8), SamplingParams(max_tokens=1))
        computed, outputs = step(under_test)
        if id == 2:
            assert computed == [(2, 4, 4)]
            assert outputs == [RequestOutput(2, (9,), FinishReason.LENGTH, cached_tokens=4)]
    assert (under_test.totals.prompt_tokens, under_test.totals.cached_tokens) == (12, 4)


def test_two_requests_share_the_blocks_of_one_prefix() -> None:
    under_test = scheduler()
    under_test.add(1, tokens(9), SamplingParams(max_tokens=5))
    step(under_test)
    under_test.add(2, tokens(9), SamplingParams(max_tokens=5))
    batch = scheduled(under_test)
    one, two = batch.work
    assert one.block_table[:2] == two.block_table[:2]
    assert one.block_table[2] != two.block_table[2]
    assert under_test.pool.num_used == 4


def test_what_is_not_committed_yet_is_not_shared() -> None:
    under_test = scheduler()
    under_test.add(1, tokens(8), SamplingParams(max_tokens=5))
    under_test.add(2, tokens(8), SamplingParams(max_tokens=5))
    assert step(under_test)[0] == [(1, 0, 8), (2, 0, 8)]


def test_when_blocks_run_out_the_newest_waits_and_is_computed_again() -> None:
    under_test = scheduler(num_blocks=4, block_size=2, max_model_len=8)
    under_test.add(1, tokens(2), SamplingParams(max_tokens=6))
    under_test.add(2, tokens(2, first=500), SamplingParams(max_tokens=4))
    assert step(under_test)[0] == [(1, 0, 2), (2, 0, 2)]
    assert step(under_test)[0] == [(1, 2, 1), (2, 2, 1)]
    assert step(under_test)[0] == [(1, 3, 1), (2, 3, 1)]
    assert step(under_test)[0] == [(1, 4, 1)]
    assert (under_test.num_running, under_test.num_waiting, under_test.totals.preemptions) == (1, 1, 1)
    assert step(under_test)[0] == [(1, 5, 1)]
    computed, outputs = step(under_test)
    assert (computed, outputs[0].finish_reason) == ([(1, 6, 1)], FinishReason.LENGTH)
    computed, outputs = step(under_test)
    assert computed[0][0] == 2
    assert outputs == [RequestOutput(2, (9,), FinishReason.LENGTH, cached_tokens=0)]
    assert not under_test.has_work


def test_nothing_is_admitted_that_would_take_the_last_block_a_running_request_can_grow_into() -> None:
    under_test = scheduler(num_blocks=4, block_size=2, max_model_len=8)
    under_test.add(1, tokens(4), SamplingParams(max_tokens=2))
    step(under_test)
    under_test.add(2, tokens(4, first=500), SamplingParams(max_tokens=2))
    assert step(under_test)[0] == [(1, 4, 1)]
    assert step(under_test)[0] == [(2, 0, 4)]
    assert under_test.totals.preemptions == 0


def order_of_admission(under_test: Scheduler) -> list[int]:
    """Ids in the order in which they are first computed; each request is of one token."""
    seen: list[int] = []
    while under_test.has_work:
        seen += [id for id, _, _ in step(under_test)[0]]
    return seen


def test_the_lower_the_priority_the_sooner_and_equals_come_in_order_of_arrival() -> None:
    under_test = scheduler(slots=1)
    for id, priority in ((1, 0), (2, 5), (3, -1), (4, 0), (5, -1), (6, 5)):
        under_test.add(id, tokens(2, first=id * 100), SamplingParams(max_tokens=1), priority)
    assert order_of_admission(under_test) == [3, 5, 1, 4, 2, 6]


def test_a_less_urgent_request_waits_for_a_bounded_number_of_later_ones() -> None:
    under_test = scheduler(slots=1)
    under_test.add(0, tokens(2), SamplingParams(max_tokens=1), 1)
    for id in range(1, 400):
        under_test.add(id, tokens(2), SamplingParams(max_tokens=1))
    assert order_of_admission(under_test).index(0) == ARRIVALS_PER_LEVEL - 1


def test_an_urgent_request_takes_nothing_from_one_that_runs_and_goes_before_those_that_wait() -> None:
    under_test = scheduler(slots=1)
    for id, priority in ((1, 0), (2, 0), (3, -1)):
        under_test.add(id, tokens(2, first=id * 100), SamplingParams(max_tokens=2), priority)
        if id == 1:
            step(under_test)
    assert order_of_admission(under_test) == [1, 3, 3, 2, 2]
    assert under_test.totals.preemptions == 0


def test_when_blocks_run_out_the_least_urgent_gives_way_though_it_came_first() -> None:
    under_test = scheduler(num_blocks=4, block_size=2, max_model_len=8)
    under_test.add(1, tokens(2), SamplingParams(max_tokens=6), 1)
    under_test.add(2, tokens(2, first=500), SamplingParams(max_tokens=4))
    for _ in range(3):
        assert [id for id, _, _ in step(under_test)[0]] == [2, 1]
    batch = scheduled(under_test)
    assert ([work.id for work in batch.work], batch.preempted) == ([2], (1,))


def test_no_more_run_than_there_are_slots() -> None:
    under_test = scheduler(slots=2)
    for id in (1, 2, 3):
        under_test.add(id, tokens(2, first=id * 100), SamplingParams(max_tokens=2))
    assert [id for id, _, _ in step(under_test)[0]] == [1, 2]
    assert (under_test.num_running, under_test.num_waiting) == (2, 1)
    assert [id for id, _, _ in step(under_test)[0]] == [1, 2]
    assert [id for id, _, _ in step(under_test)[0]] == [3]


def test_what_is_aborted_in_flight_keeps_its_blocks_until_the_batch_retires_and_says_nothing() -> None:
    under_test = scheduler()
    under_test.add(1, tokens(5), SamplingParams(max_tokens=5))
    batch = scheduled(under_test)
    under_test.abort([1])
    assert (under_test.pool.num_used, under_test.has_work) == (2, False)
    under_test.check_integrity()
    assert under_test.commit(batch, [[7]]) == []
    assert under_test.pool.num_used == 0
    assert under_test.schedule() is None


def test_what_is_aborted_while_waiting_never_runs() -> None:
    under_test = scheduler(slots=1)
    under_test.add(1, tokens(2), SamplingParams(max_tokens=1))
    under_test.add(2, tokens(2), SamplingParams(max_tokens=1))
    step(under_test)
    under_test.abort([2, 2, 77])
    assert under_test.schedule() is None


@pytest.mark.parametrize(
    ("params", "sampled", "expected"),
    [
        pytest.param(SamplingParams(3, stop_token_ids=(7,)), [7], ((7,), FinishReason.STOP), id="a stop token ends it"),
        pytest.param(SamplingParams(1), [5], ((5,), FinishReason.LENGTH), id="max_tokens ends it"),
        pytest.param(
            SamplingParams(1, stop_token_ids=(7,)),
            [7],
            ((7,), FinishReason.STOP),
            id="a stop at the limit is a stop",
        ),
        pytest.param(
            SamplingParams(3, stop_token_ids=(7,), ignore_eos=True), [7], ((7,), None), id="ignore_eos goes on after it"
        ),
        pytest.param(
            SamplingParams(3, stop_token_ids=(7,), min_tokens=1),
            [7],
            ((7,), None),
            id="before min_tokens none stops",
        ),
        pytest.param(
            SamplingParams(9, stop_token_ids=(7,)),
            [5, 7, 6],
            ((5, 7), FinishReason.STOP),
            id="none is taken after a stop",
        ),
        pytest.param(SamplingParams(2), [5, 6, 7], ((5, 6), FinishReason.LENGTH), id="nothing is taken after the last"),
    ],
)
def test_ends(params: SamplingParams, sampled: list[int], expected: tuple[Sequence[int], FinishReason | None]) -> None:
    under_test = scheduler()
    under_test.add(1, tokens(3), params)
    [output] = under_test.commit(scheduled(under_test), [sampled])
    assert (output.tokens, output.finish_reason) == expected


def test_several_tokens_taken_at_once_are_computed_in_the_next_step() -> None:
    under_test = scheduler()
    under_test.add(1, tokens(3), SamplingParams(max_tokens=9))
    under_test.commit(scheduled(under_test), [[5, 6, 7]])
    [work] = scheduled(under_test).work
    assert (work.start, work.token_ids) == (3, (5, 6, 7))


def test_a_step_that_yields_no_token_is_done_again() -> None:
    under_test = scheduler()
    under_test.add(1, tokens(3), SamplingParams(max_tokens=9))
    assert under_test.commit(scheduled(under_test), [[]]) == []
    [work] = scheduled(under_test).work
    assert (work.start, work.token_ids, work.samples) == (2, (102,), True)


def speculating(under_test: Scheduler, drafts: dict[int, list[int]], sampled: list[list[int]]) -> list[RequestOutput]:
    """A step that checks `drafts`."""
    batch = under_test.schedule(drafts)
    assert batch is not None
    outputs = under_test.commit(batch, sampled)
    under_test.check_integrity()
    return outputs


def decoding(max_tokens: int = 20, **shape: int) -> Scheduler:
    """Request 1 with a prompt of three tokens and one of its answer, 9, that is not computed yet."""
    under_test = scheduler(**shape)
    under_test.add(1, tokens(3), SamplingParams(max_tokens=max_tokens, stop_token_ids=(7,)))
    step(under_test)
    return under_test


@pytest.mark.parametrize(
    ("sampled", "said", "next_start", "used"),
    [
        pytest.param([5, 6, 8, 4], (5, 6, 8, 4), 7, 2, id="all come true, and one more is known"),
        pytest.param([5, 6, 1], (5, 6, 1), 6, 2, id="the third is wrong"),
        pytest.param([1], (1,), 4, 1, id="the first is wrong, and the block taken for it is given back"),
        pytest.param([], None, 3, 1, id="nothing was sampled"),
    ],
)
def test_of_three_guesses(sampled: list[int], said: tuple[int, ...] | None, next_start: int, used: int) -> None:
    under_test = decoding()
    outputs = speculating(under_test, {1: [5, 6, 8]}, [sampled])
    assert [output.tokens for output in outputs] == ([] if said is None else [said])
    assert under_test.pool.num_used == used
    [work] = scheduled(under_test).work
    assert (work.start, len(work.token_ids), work.num_rows) == (next_start, 1, 1)


def test_a_guess_is_computed_after_what_is_known_and_has_a_row_of_its_own() -> None:
    batch = decoding().schedule({1: [5, 6], 77: [1]})
    assert batch is not None
    [work] = batch.work
    assert (work.start, work.token_ids, work.drafts, work.num_rows) == (3, (9, 5, 6), 2, 3)
    assert len(work.block_table) == 2


@pytest.mark.parametrize(
    ("shape", "drafts"),
    [
        pytest.param({"token_budget": 3}, 2, id="the budget that is left"),
        pytest.param({"max_tokens": 4}, 2, id="what the answer has room for, the last token left out"),
        pytest.param({"num_blocks": 1, "max_tokens": 2}, 0, id="no block"),
        pytest.param({"num_blocks": 2, "block_size": 2, "max_tokens": 2}, 0, id="a block that is full"),
        pytest.param({"num_blocks": 4, "block_size": 2, "max_tokens": 5}, 3, id="blocks for all of them"),
    ],
)
def test_guesses_are_as_many_as_fit_in(shape: dict[str, int], drafts: int) -> None:
    batch = decoding(**shape).schedule({1: [5, 6, 8, 4, 3, 2]})
    assert batch is not None
    assert batch.work[0].drafts == drafts


def test_who_waits_is_admitted_before_anything_is_guessed() -> None:
    under_test = decoding(token_budget=8)
    under_test.add(2, tokens(6, first=500), SamplingParams(max_tokens=9))
    batch = under_test.schedule({1: [5, 6, 8]})
    assert batch is not None
    assert [(work.id, len(work.token_ids), work.drafts) for work in batch.work] == [(1, 2, 1), (2, 6, 0)]


def test_nothing_is_guessed_for_a_prompt_that_is_not_finished() -> None:
    under_test = scheduler(token_budget=8)
    under_test.add(1, tokens(9), SamplingParams(max_tokens=9))
    assert under_test.decoding() == []
    batch = under_test.schedule({1: [5]})
    assert batch is not None
    assert [(work.samples, work.drafts) for work in batch.work] == [(False, 0)]


def test_a_stop_among_the_guesses_is_the_end_and_what_was_right_is_shared() -> None:
    under_test = decoding(max_tokens=9)
    [output] = speculating(under_test, {1: [5, 6, 8, 4, 7, 3]}, [[5, 6, 8, 4, 7, 3, 2]])
    assert (output.tokens, output.finish_reason) == ((5, 6, 8, 4, 7), FinishReason.STOP)
    assert under_test.pool.num_used == 0
    under_test.add(2, [*tokens(3), 9, 5, 6, 8, 4, 7], SamplingParams(max_tokens=1))
    assert step(under_test)[0] == [(2, 8, 1)]


def test_a_guess_that_was_wrong_is_not_shared() -> None:
    under_test = decoding(max_tokens=9)
    speculating(under_test, {1: [5, 6, 8, 4, 3]}, [[5, 1]])
    under_test.abort([1])
    under_test.add(2, [*tokens(3), 9, 5, 6, 8, 4, 3], SamplingParams(max_tokens=1))
    assert step(under_test)[0] == [(2, 4, 5)]


def test_who_leaves_while_its_guesses_are_checked_gives_everything_back() -> None:
    under_test = decoding()
    batch = under_test.schedule({1: [5, 6, 8]})
    assert batch is not None
    under_test.abort([1])
    assert under_test.commit(batch, [[5, 6, 8, 4]]) == []
    assert (under_test.pool.num_used, under_test.has_work) == (0, False)
    under_test.check_integrity()


def test_drafts_are_counted_with_what_came_true_of_them() -> None:
    under_test = decoding()
    speculating(under_test, {1: [5, 6, 8]}, [[5, 6, 1]])
    speculating(under_test, {1: [5]}, [[5, 4]])
    speculating(under_test, {}, [[5]])
    totals = under_test.totals
    assert (totals.drafts, totals.draft_tokens, totals.accepted_tokens) == (2, 4, 3)
    assert totals.accepted_by_position == [2, 1, 0]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        pytest.param([], 1, "prompt: is empty", id="an empty prompt"),
        pytest.param([1], 0, "max_tokens 0", id="no token wanted"),
        pytest.param([1] * 60, 5, "over max_model_len 64", id="longer than the model"),
        pytest.param([1] * 20, 14, "over the KV cache's 32 tokens", id="longer than the cache"),
    ],
)
def test_what_can_never_run_is_refused_and_changes_nothing(prompt: list[int], max_tokens: int, message: str) -> None:
    under_test = scheduler(num_blocks=8)
    with pytest.raises(RequestRefused, match=message):
        under_test.add(1, prompt, SamplingParams(max_tokens=max_tokens))
    assert under_test.schedule() is None
    under_test.add(1, [1] * 20, SamplingParams(max_tokens=13))


def test_an_id_in_use_is_refused() -> None:
    under_test = scheduler()
    under_test.add(1, [1], SamplingParams(max_tokens=1))
    with pytest.raises(RequestRefused, match="id 1"):
        under_test.add(1, [1], SamplingParams(max_tokens=1))


def test_batches_are_committed_one_by_one_and_in_full() -> None:
    under_test = scheduler()
    under_test.add(1, [1], SamplingParams(max_tokens=2))
    batch = scheduled(under_test)
    with pytest.raises(IntegrityError, match="in flight"):
        under_test.schedule()
    with pytest.raises(IntegrityError, match="parts"):
        under_test.commit(batch, [])
    under_test.commit(batch, [[3]])
    with pytest.raises(IntegrityError, match="not the one"):
        under_test.commit(batch, [[3]])


def test_without_prefix_caching_nothing_is_shared() -> None:
    under_test = Scheduler(BlockPool(64, 4, b"key"), Limits(64, 16, 8, prefix_caching=False))
    for id in (1, 2):
        under_test.add(id, tokens(9), SamplingParams(max_tokens=1))
        assert step(under_test)[0] == [(id, 0, 9)]
