"""Quantiles, arrivals and prompts: numbers that must mean what they say."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_lab.load.arrivals import poisson
from tidegate_lab.load.prompts import prompt
from tidegate_lab.load.samples import Quantiles, nearest_rank


@pytest.mark.parametrize(
    ("samples", "percent", "expected"),
    [
        pytest.param([5.0], 99, 5.0, id="of one sample every quantile is that sample"),
        pytest.param([1.0, 2.0], 50, 1.0, id="of two the median is the lower: half do not exceed it"),
        pytest.param([float(n) for n in range(1, 101)], 99, 99.0, id="of a hundred p99 is the ninety-ninth"),
        pytest.param([float(n) for n in range(1, 102)], 99, 100.0, id="of a hundred and one it is the hundredth"),
        pytest.param([float(n) for n in range(1, 21)], 95, 19.0, id="0.95 * 20 is 19 and no rounding makes it 20"),
        pytest.param([1.0, 1.0, 9.0], 99, 9.0, id="of few samples p99 is the maximum"),
    ],
)
def test_a_quantile_is_the_nearest_rank(samples: list[float], percent: int, expected: float) -> None:
    assert nearest_rank(samples, percent) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_quantiles_are_samples_and_enough_samples_do_not_exceed_them(samples: list[float]) -> None:
    found = Quantiles.of(samples)
    assert found is not None
    for share, value in ((50, found.p50), (90, found.p90), (95, found.p95), (99, found.p99)):
        assert value in samples
        assert sum(s <= value for s in samples) * 100 >= share * len(samples)
    assert found.p50 <= found.p90 <= found.p95 <= found.p99 <= found.max


def test_of_nothing_there_is_no_quantile_rather_than_zero() -> None:
    assert Quantiles.of([]) is None


@given(st.floats(0.1, 100), st.integers(0, 1000), st.integers(1, 200), st.floats(0.1, 100))
def test_arrivals_rise_and_keep_within_their_number_and_time(rate: float, seed: int, n: int, seconds: float) -> None:
    times = list(poisson(rate, seed, n, seconds))
    assert len(times) <= n
    assert all(0 <= a < b <= seconds for a, b in itertools.pairwise([0.0, *times]))
    assert times == list(poisson(rate, seed, n, seconds))


def test_the_rate_of_arrivals_is_the_rate_that_was_asked_for() -> None:
    # 10,000 gaps: the mean's standard error is 1 %, so 4 % is far outside chance.
    times = list(poisson(50.0, 7, 10_000, math.inf))
    assert times[-1] / len(times) == pytest.approx(1 / 50, rel=0.04)


def test_prompts_are_the_same_for_the_same_seed_and_differ_from_their_first_word_otherwise() -> None:
    assert prompt(1, 2, 100) == prompt(1, 2, 100)
    first = {prompt(1, n, 100)[:40] for n in range(50)}
    assert len(first) == 50


def test_longer_prompts_are_longer() -> None:
    lengths = [len(prompt(0, 0, n).split()) for n in (50, 100, 200)]
    assert lengths[1] - lengths[0] == 50
    assert lengths[2] - lengths[1] == 100
