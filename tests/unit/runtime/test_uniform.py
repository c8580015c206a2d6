"""Random numbers that come from a counter."""

from __future__ import annotations

import itertools

import numpy as np
from tidegate_engine.runtime.uniform import uniform, uniforms


def test_the_same_place_always_gives_the_same_number() -> None:
    assert uniform(7, 1, 40) == uniform(7, 1, 40)


def test_seed_choice_and_position_each_change_it() -> None:
    numbers = {uniform(s, c, p) for s in range(10) for c in range(10) for p in range(10)}
    assert len(numbers) == 1000


def test_numbers_are_spread_evenly_over_zero_to_one() -> None:
    numbers = [uniform(2**63 - 1, 0, position) for position in range(20_000)]
    assert all(0 <= number < 1 for number in numbers)
    tenths = [sum(int(number * 10) == tenth for number in numbers) for tenth in range(10)]
    # 2,000 expected in each, with a standard deviation of 42.
    assert all(abs(count - 2000) < 5 * 42 for count in tenths)
    neighbours = sum((a - 0.5) * (b - 0.5) for a, b in itertools.pairwise(numbers)) / len(numbers)
    assert abs(neighbours) < 5 / 12 / 20_000**0.5


def test_many_at_once_are_the_same_numbers() -> None:
    seeds, choices, positions = [0, 5, 2**64 - 1, 2**63], [0, 1, 2, 3], [1, 2, 4096, 10**9]
    found = uniforms(*(np.array(column, dtype=np.uint64) for column in (seeds, choices, positions)))
    assert found.tolist() == [uniform(*row) for row in zip(seeds, choices, positions, strict=True)]
