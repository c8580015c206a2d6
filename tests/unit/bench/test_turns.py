"""What turns on a shared machine say."""

from __future__ import annotations

import pytest
from tidegate_bench.messages import Timing
from tidegate_bench.turns import Pair, compare, quiet, take_turns


def timing(rate: float, others: float = 0.0) -> Timing:
    """A second's work at so many tokens a second, while others took so many cores."""
    return Timing(tokens=round(rate), wall=1.0, cpu=2.0, others=others)


def pair(ours: float, peer: float, others: float = 0.0) -> Pair:
    return Pair(timing(ours, others), timing(peer, others))


def test_who_goes_first_alternates_and_the_pairs_know_whose_turn_was_whose() -> None:
    order: list[str] = []

    def go(name: str, rate: float) -> Timing:
        order.append(name)
        return timing(rate)

    pairs = take_turns(3, lambda turn: go(f"ours {turn}", 20), lambda turn: go(f"peer {turn}", 10))
    assert order == ["ours 0", "peer 0", "peer 1", "ours 1", "ours 2", "peer 2"]
    assert [(found.ours.tokens, found.peer.tokens) for found in pairs] == [(20, 10)] * 3


@pytest.mark.parametrize(
    ("pairs", "ratio", "used", "disturbed"),
    [
        pytest.param([pair(20, 10)], 2.0, 1, 0, id="one pair is its own median"),
        pytest.param([pair(20, 10), pair(10, 5), pair(100, 10)], 2.0, 3, 0, id="a busy moment that meets both is none"),
        pytest.param([pair(20, 10)] * 3 + [pair(1, 10, others=1.5)] * 4, 2.0, 3, 4, id="disturbed pairs are left out"),
        pytest.param([pair(20, 10)] * 2 + [pair(1, 10, others=1.5)] * 3, 0.1, 5, 0, id="too few quiet ones: all count"),
        pytest.param([pair(20, 10, others=0.1)] * 3, 2.0, 3, 0, id="a tenth of a core is no disturbance"),
    ],
)
def test_the_ratio_is_the_median_of_undisturbed_pairs(
    pairs: list[Pair], ratio: float, used: int, disturbed: int
) -> None:
    found = compare(pairs)
    assert (found.ratio, found.pairs, found.disturbed) == (pytest.approx(ratio), used, disturbed)


def test_a_pair_is_disturbed_when_either_turn_was() -> None:
    assert quiet([Pair(timing(20), timing(10, others=1.0)), Pair(timing(20, others=1.0), timing(10))]) == []


def test_figures_of_a_busy_machine_say_so() -> None:
    assert compare([pair(20, 10, others=1.5)]).others_cores == pytest.approx(1.5)
    assert compare([pair(20, 10)]).others_cores == 0.0


def test_nothing_measured_is_an_error_and_no_ratio() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        compare([])
