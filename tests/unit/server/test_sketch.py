"""Quantiles keep their promise of 1 %, sketches merge by adding, and a wild value costs one bin."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_engine.server.sketch import GAMMA, LARGEST, Sketch

durations = st.lists(st.floats(min_value=2e-6, max_value=1e6), min_size=1, max_size=200)


def estimate(bins: dict[int, int], rank: int) -> float:
    for key in sorted(bins):
        rank -= bins[key]
        if rank < 0:
            return 2 * GAMMA**key / (GAMMA + 1)
    raise AssertionError("no such rank")


@given(durations, st.floats(min_value=0, max_value=1))
def test_every_quantile_is_within_one_percent(values: list[float], share: float) -> None:
    rank = min(len(values) - 1, int(share * len(values)))
    exact = sorted(values)[rank]
    assert estimate(Sketch(values).bins, rank) == pytest.approx(exact, rel=0.0101)


@given(durations, durations)
def test_adding_the_bins_of_two_sketches_is_the_sketch_of_all_their_values(one: list[float], two: list[float]) -> None:
    merged = dict(Sketch(one).bins)
    for key, count in Sketch(two).bins.items():
        merged[key] = merged.get(key, 0) + count
    assert merged == Sketch([*one, *two]).bins


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-7, 1e-6, math.nan])
def test_what_is_not_above_a_microsecond_counts_as_zero(value: float) -> None:
    sketch = Sketch([value])
    assert (sketch.zero, sketch.bins) == (1, {})


def test_what_is_longer_than_the_longest_counts_as_the_longest() -> None:
    assert Sketch([math.inf, 1e300]).bins == {key: 2 * count for key, count in Sketch([LARGEST]).bins.items()}


def test_the_seam_names_the_bin_of_a_value() -> None:
    assert Sketch([0.5]).snapshot().bins == {str(math.ceil(math.log(0.5, GAMMA))): 1}
    assert Sketch([0.5]).snapshot().gamma == pytest.approx(1.0202020202)


def test_folding_keeps_every_count_and_the_highest_bins() -> None:
    whole = Sketch(1.1**exponent for exponent in range(200))
    folded = whole.snapshot(max_bins=10)
    assert len(folded.bins) == 10
    assert sum(folded.bins.values()) == 200
    highest = sorted(whole.bins)[-9:]
    assert all(folded.bins[str(key)] == whole.bins[key] for key in highest)
