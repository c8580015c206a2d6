"""The cost of steps, learned from what they took: found again under noise, outliers, and a machine that changes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tidegate_engine.link.messages import StepCost
from tidegate_engine.runtime.step_model import StepModel

TRUE = StepCost(0.010, 0.0020, 2e-6, 0.0)


def drawn_step(draw: random.Random) -> tuple[int, int]:
    """New tokens and tokens held, as a server sees them: mostly decoding, now and then a piece of a prompt."""
    running = draw.randint(1, 32)
    prompt = draw.choice([0, 0, 0, draw.randint(16, 480)])
    return running + prompt, running * draw.randint(50, 2000) + prompt


def fed(steps: int, seconds: Callable[[int, int, random.Random], float], model: StepModel | None = None) -> StepModel:
    found, draw = model or StepModel(), random.Random(1)
    for _ in range(steps):
        new, held = drawn_step(draw)
        found.observe(new, held, seconds(new, held, draw))
    return found


def exact(new: int, held: int, draw: random.Random) -> float:
    return TRUE.seconds(new, held)


def noisy(new: int, held: int, draw: random.Random) -> float:
    return TRUE.seconds(new, held) * draw.uniform(0.9, 1.1)


def interrupted(new: int, held: int, draw: random.Random) -> float:
    return noisy(new, held, draw) * (draw.uniform(5, 50) if draw.random() < 0.04 else 1.0)


def known(model: StepModel) -> StepCost:
    assert model.cost is not None
    return model.cost


@pytest.mark.parametrize(
    ("seconds", "share"),
    [
        pytest.param(exact, 0.001, id="without noise"),
        pytest.param(noisy, 0.1, id="with 10 % of noise"),
        pytest.param(interrupted, 0.3, id="with noise, and one step in 25 interrupted for many times its length"),
    ],
)
def test_it_finds_the_coefficients_again(seconds: Callable[[int, int, random.Random], float], share: float) -> None:
    cost = known(fed(2000, seconds))
    assert cost.a == pytest.approx(TRUE.a, rel=share)
    assert cost.b == pytest.approx(TRUE.b, rel=share)
    assert cost.c == pytest.approx(TRUE.c, rel=share)


def test_the_error_says_how_far_off_steps_are() -> None:
    assert known(fed(2000, exact)).error < 0.001
    assert known(fed(2000, noisy)).error == pytest.approx(0.05, abs=0.02)


def test_nothing_is_said_before_enough_is_known() -> None:
    assert fed(15, exact).cost is None
    assert fed(16, exact).cost is not None


def test_a_machine_that_becomes_twice_as_slow_is_noticed() -> None:
    model = fed(2000, noisy)
    fed(1000, lambda new, held, draw: 2 * noisy(new, held, draw), model)
    assert known(model).seconds(16, 8000) == pytest.approx(2 * TRUE.seconds(16, 8000), rel=0.15)
    assert known(model).seconds(400, 8000) == pytest.approx(2 * TRUE.seconds(400, 8000), rel=0.15)


def test_an_hour_of_single_tokens_does_not_unlearn_what_a_prompt_costs() -> None:
    model, draw = fed(2000, noisy), random.Random(2)
    for step in range(20_000):
        model.observe(1, 100 + step % 900, noisy(1, 100 + step % 900, draw))
    assert known(model).seconds(400, 500) == pytest.approx(TRUE.seconds(400, 500), rel=0.15)
    assert known(model).seconds(1, 500) == pytest.approx(TRUE.seconds(1, 500), rel=0.05)


def test_a_cost_that_cannot_be_seen_is_taken_to_be_fixed() -> None:
    model = StepModel()
    for _ in range(100):
        model.observe(1, 200, 0.02)
    cost = known(model)
    assert cost.a == pytest.approx(0.02, rel=0.01)
    assert cost.seconds(1, 200) == pytest.approx(0.02, rel=0.001)


@pytest.mark.parametrize("seed", range(5))
def test_no_coefficient_is_negative_whatever_is_measured(seed: int) -> None:
    draw, model = random.Random(seed), StepModel()
    for _ in range(500):
        model.observe(draw.randint(1, 500), draw.randint(1, 10**6), draw.expovariate(1.0))
        if model.cost is not None:
            assert min(model.cost.a, model.cost.b, model.cost.c, model.cost.error) >= 0.0


def test_larger_tokens_that_seem_cheaper_cost_nothing_rather_than_less() -> None:
    model = StepModel()
    for step in range(200):
        model.observe(1 + step % 100, 1000, 0.1 - 0.0005 * (step % 100))
    assert known(model).b == 0.0


def test_a_clock_that_stood_still_says_nothing() -> None:
    model = StepModel()
    for _ in range(100):
        model.observe(1, 10, 0.0)
    assert model.cost is None
