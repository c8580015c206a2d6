"""What is measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_bench.plan import DECODES, random_ids, slices


@given(total=st.integers(1, 500), rounds=st.integers(1, 50))
def test_turns_share_a_generation_evenly_and_completely(total: int, rounds: int) -> None:
    parts = slices(total, rounds)
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1
    assert min(parts) >= 1


def test_a_seed_gives_the_same_prompt_and_another_gives_another() -> None:
    assert random_ids(64, 49152, "a") == random_ids(64, 49152, "a")
    assert random_ids(64, 49152, "a") != random_ids(64, 49152, "b")
    assert all(0 <= token < 10 for token in random_ids(1000, 10, "a"))


@pytest.mark.parametrize(
    ("key", "requests", "context"),
    [("decode_1", 1, 64), ("decode_8", 8, 64), ("decode_32", 32, 64), ("decode_32_ctx512", 32, 512)],
)
def test_figures_are_those_the_goals_are_written_for(key: str, requests: int, context: int) -> None:
    (figure,) = [figure for figure in DECODES if figure.key == key]
    assert (figure.requests, figure.context, figure.new_tokens) == (requests, context, 128)
