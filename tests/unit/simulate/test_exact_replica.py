"""One replica in virtual time: when each token comes, by arithmetic that can be followed by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.exact import ExactReplica

ENGINE = EngineModel(
    name="small", step=StepModel(0.01, 0.001, 0.0001), slots=4, kv_tokens=640, block_size=16, token_budget=64
)


def test_one_request_alone_takes_a_step_for_its_prompt_and_one_for_each_further_token() -> None:
    replica = ExactReplica(ENGINE)
    assert replica.submit(7, 1.0, 10, 3)
    replica.advance(inf)
    first = 1.0 + 0.01 + 10 * 0.001 + 10 * 0.0001
    last = first + 2 * (0.01 + 0.001) + (11 + 12) * 0.0001
    assert replica.take_first_tokens() == [(7, pytest.approx(first))]
    assert replica.take_finished() == [(7, pytest.approx(last))]
    assert replica.take_finished() == []


def test_a_long_prompt_is_computed_by_as_many_tokens_a_step_as_the_budget_allows() -> None:
    replica = ExactReplica(ENGINE)
    replica.submit(0, 0.0, 150, 1)
    replica.advance(inf)
    assert replica.counts.steps == 3
    expected = 3 * 0.01 + 150 * 0.001 + (64 + 128 + 150) * 0.0001
    assert replica.take_finished() == [(0, pytest.approx(expected))]


def test_an_arrival_during_a_step_joins_the_next() -> None:
    replica = ExactReplica(ENGINE)
    replica.submit(0, 0.0, 10, 5)
    replica.submit(1, 0.001, 10, 1)
    replica.advance(inf)
    first = 0.01 + 10 * 0.0011
    second = first + 0.01 + 11 * 0.001 + (11 + 10) * 0.0001
    assert replica.take_first_tokens() == [(0, pytest.approx(first)), (1, pytest.approx(second))]


def test_what_is_seen_at_a_time_is_what_had_happened_by_then() -> None:
    replica = ExactReplica(ENGINE)
    replica.submit(0, 0.0, 10, 5)
    replica.submit(1, 0.5, 10, 5)
    replica.advance(0.02)  # the first step takes 0.021
    assert replica.take_first_tokens() == []
    assert (replica.gauges.running, replica.gauges.waiting, replica.gauges.oldest_waiting_at) == (0, 2, 0.0)
    replica.advance(0.0211)
    assert replica.take_first_tokens() == [(0, pytest.approx(0.021))]
    assert (replica.gauges.running, replica.gauges.waiting, replica.gauges.oldest_waiting_at) == (1, 1, 0.5)
    assert (replica.gauges.blocks_used, replica.gauges.last_step_at) == (1, pytest.approx(0.021))
    assert replica.unfinished == (0, 1)


def test_what_could_never_fit_and_what_finds_the_queue_full_is_refused_and_counted() -> None:
    replica = ExactReplica(replace(ENGINE, slots=1, most_queued=1))
    assert not replica.submit(0, 0.0, 630, 12)  # 641 tokens need keys and values, and there are places for 640
    assert replica.submit(1, 0.0, 630, 11)
    assert replica.submit(2, 0.0, 10, 1)
    assert not replica.submit(3, 0.0, 10, 1)
    replica.advance(inf)
    assert [index for index, _ in replica.take_finished()] == [1, 2]
    assert (replica.counts.received, replica.counts.rejected, replica.counts.finished) == (4, 2, 2)


def test_time_does_not_go_back() -> None:
    replica = ExactReplica(ENGINE)
    replica.advance(5.0)
    with pytest.raises(ValueError, match="request 0 at 4: is in the past, it is 5"):
        replica.submit(0, 4.0, 1, 1)


def test_requests_that_outgrow_the_cache_together_are_preempted_and_all_end() -> None:
    replica = ExactReplica(ENGINE)
    for index in range(4):
        replica.submit(index, 0.0, 100, 200)
    replica.advance(inf)
    assert replica.counts.preemptions > 0
    assert sorted(index for index, _ in replica.take_finished()) == [0, 1, 2, 3]
    assert (replica.counts.prompt_tokens, replica.counts.generated_tokens) == (400, 800)
    assert (replica.gauges.blocks_used, replica.unfinished) == (0, ())


arrivals = st.lists(
    st.tuples(st.floats(0.0, 2.0), st.integers(1, 200), st.integers(1, 150)), min_size=1, max_size=12
).map(sorted)


@settings(max_examples=50, deadline=None)
@given(arrivals, st.lists(st.floats(0.0, 4.0), max_size=20).map(sorted))
def test_how_often_one_looks_changes_nothing(requests: list[tuple[float, int, int]], looks: list[float]) -> None:
    at_once, looked_at = ExactReplica(ENGINE), ExactReplica(ENGINE)
    for index, (at, prompt, output) in enumerate(requests):
        at_once.submit(index, at, prompt, output)
        for look in [x for x in looks if x <= at]:
            looked_at.advance(look)
        looked_at.advance(at)
        looks = [x for x in looks if x > at]
        looked_at.submit(index, at, prompt, output)
    for look in [*looks, inf]:
        looked_at.advance(look)
    at_once.advance(inf)
    assert at_once.take_first_tokens() == looked_at.take_first_tokens()
    assert at_once.take_finished() == looked_at.take_finished()
    assert at_once.counts == looked_at.counts
    assert at_once.counts.finished == len(requests) - at_once.counts.rejected
