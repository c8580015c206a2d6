"""Prompt lookup: what followed the end of the text when it stood there before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_engine.core.scheduler import Decoding
from tidegate_engine.runtime.prompt_lookup import PromptLookup


def guessed(lookup: PromptLookup, tokens: Sequence[int], depth: int = 4) -> list[int]:
    return lookup.propose([(Decoding(1, tokens, 99), depth)]).get(1, [])


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param([1, 2, 3, 4, 5, 6, 9, 1, 2], [3, 4, 5, 6], id="the end stood at the beginning"),
        pytest.param([1, 2, 3, 7, 1, 2, 4, 8, 1, 2], [4, 8, 1, 2], id="of two equal places the more recent"),
        pytest.param([5, 1, 2, 3, 3, 6, 1, 2, 4, 4, 5, 1, 2], [3, 3, 6, 1], id="the place with a longer past"),
        pytest.param([1, 2, 3, 4, 5, 6, 7], [], id="nothing like it"),
        pytest.param([1, 9, 2, 9, 3, 9], [], id="one equal token is not enough"),
        pytest.param([7, 7, 7, 7], [7, 7, 7, 7], id="a token that repeats goes on"),
        pytest.param([1, 2, 3, 1, 2, 3, 1, 2], [3, 1, 2, 3], id="a period shorter than the guess goes on"),
        pytest.param([1, 2], [], id="too short a text"),
        pytest.param([1], [], id="a single token"),
    ],
)
def test_of_a_text(tokens: list[int], expected: list[int]) -> None:
    assert guessed(PromptLookup(), tokens) == expected


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 6))
def test_a_text_that_grows_is_guessed_like_one_that_is_new(tokens: list[int], depth: int) -> None:
    growing = PromptLookup()
    for length in range(1, len(tokens) + 1):
        found = guessed(growing, tokens[:length], depth)
        assert found == guessed(PromptLookup(), tokens[:length], depth)
        assert len(found) in (0, depth)


def test_what_is_over_is_forgotten() -> None:
    lookup = PromptLookup()
    assert guessed(lookup, [1, 2, 3, 1, 2]) == [3, 1, 2, 3]
    lookup.forget(1)
    lookup.forget(1)
    assert guessed(lookup, [8, 9, 7, 8, 9]) == [7, 8, 9, 7]
