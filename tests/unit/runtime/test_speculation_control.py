"""Whether guessing pays, on timelines of machines whose costs the test makes up: no clock, no chance of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from tidegate_engine.link.messages import StepCost
from tidegate_engine.runtime.speculation_control import SpeculationControl


@dataclass
class World:
    """A machine with these costs in seconds, on which so many requests decode; guesses come true with some chance."""

    requests: int = 1
    chance: float = 0.8
    step: float = 0.010
    token: float = 0.0005
    guess: float | None = None
    """What a guess adds to a step; None: as much as any other token."""
    draft_pass: float = 0.0
    most: int = 4
    noise: float = 0.03

    def __post_init__(self) -> None:
        self.control = SpeculationControl(self.most)
        self.draw = random.Random(7)

    def cost(self) -> StepCost:
        return StepCost(self.step, self.token, 1e-7, 0.02)

    def true_seconds(self, guesses: int) -> float:
        extra = self.token if self.guess is None else self.guess
        return self.cost().seconds(self.requests, self.requests * 500) + guesses * extra

    def run(self, steps: int) -> tuple[float, float]:
        """Tokens a second, and guesses a request and step."""
        tokens, seconds, guessed = 0, 0.0, 0
        ids, held = list(range(self.requests)), self.requests * 500
        for _ in range(steps):
            depths = self.control.plan(ids, held, self.cost())
            deepest = max(depths.values(), default=0)
            self.control.proposed(self.requests, deepest, deepest * self.draft_pass)
            guesses = sum(depths.values())
            took = self.true_seconds(guesses) * self.draw.uniform(1 - self.noise, 1 + self.noise)
            for id in ids:
                accepted = 0
                while accepted < depths.get(id, 0) and self.draw.random() < self.chance:
                    accepted += 1
                if depths.get(id, 0):
                    self.control.checked(id, depths[id], accepted)
                tokens += 1 + accepted
            self.control.stepped(self.requests, guesses, held, took, self.cost())
            seconds += took + deepest * self.draft_pass
            guessed += guesses
        return tokens / seconds, guessed / steps / self.requests

    def with_depth(self, depth: int) -> float:
        """Tokens a second where as many are always guessed."""
        said = sum(self.chance**place for place in range(depth + 1)) * self.requests
        return said / (self.true_seconds(depth * self.requests) + depth * self.draft_pass)

    @property
    def best(self) -> float:
        return max(self.with_depth(depth) for depth in range(self.most + 1))


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(), id="one request, guesses mostly right"),
        pytest.param(World(chance=0.95, most=8), id="one request, guesses nearly always right"),
        pytest.param(World(chance=0.3), id="one request, guesses mostly wrong"),
        pytest.param(World(chance=0.02), id="one request, guesses always wrong"),
        pytest.param(World(requests=32, token=0.002), id="32 requests that fill the machine"),
        pytest.param(World(requests=32, token=0.002, chance=0.3), id="32 requests, guesses mostly wrong"),
        pytest.param(World(requests=32, token=0.0001), id="32 requests on a machine that has room for guesses"),
        pytest.param(World(guess=0.005), id="guesses that cost more than was expected of them"),
        pytest.param(World(requests=8, guess=0.0001), id="guesses that cost less than was expected of them"),
        pytest.param(World(draft_pass=0.002), id="a draft model a fifth of the size"),
        pytest.param(World(draft_pass=0.010), id="a draft model as slow as the model"),
        pytest.param(World(draft_pass=0.010, requests=16, token=0.002), id="a slow draft model and a full machine"),
    ],
)
def test_it_comes_near_the_best_fixed_depth(world: World) -> None:
    world.run(300)
    found, _ = world.run(1500)
    assert found > 0.93 * world.best
    assert found > 0.96 * world.with_depth(0)


def test_it_stops_where_it_loses_and_looks_again_only_now_and_then() -> None:
    world = World(chance=0.05, requests=4, token=0.002)
    world.run(300)
    _, guessed = world.run(1000)
    assert 0 < guessed < 0.05


def test_a_full_machine_gets_no_guesses_though_they_come_true() -> None:
    world = World(chance=0.9, requests=32, token=0.005, step=0.001)
    world.run(300)
    assert world.run(1000)[1] < 0.08


def test_it_guesses_again_when_the_text_repeats_again() -> None:
    world = World(chance=0.02)
    world.run(500)
    world.chance = 0.95
    world.run(300)
    assert world.run(500)[1] > 3.0


def test_it_stops_when_the_machine_has_become_full() -> None:
    world = World(requests=2)
    assert world.run(500)[1] > 2.0
    world.requests, world.token, world.step = 32, 0.005, 0.001
    world.run(300)
    assert world.run(1000)[1] < 0.08


def test_one_request_that_repeats_is_guessed_for_among_others_that_do_not() -> None:
    control = SpeculationControl(4)
    cost = StepCost(0.010, 0.001, 0.0, 0.0)
    for _ in range(200):
        depths = control.plan([1, 2, 3], 300, cost)
        for id, depth in depths.items():
            control.checked(id, depth, depth if id == 2 else 0)
        guesses = sum(depths.values())
        control.stepped(3, guesses, 300, cost.seconds(3 + guesses, 300), cost)
    plans = [control.plan([1, 2, 3], 300, cost) for _ in range(4)]
    assert all(plan.get(2) == 4 for plan in plans)
    assert sum(1 in plan or 3 in plan for plan in plans) <= 1


def test_a_new_request_is_believed_what_the_others_have_shown() -> None:
    control = SpeculationControl(4)
    cost = StepCost(0.010, 0.001, 0.0, 0.0)
    for id in range(100):
        control.checked(id, 4, 0)
        control.forget(id)
    assert control.plan([1000], 100, cost) == {}


def test_before_steps_are_known_everything_is_tried() -> None:
    assert SpeculationControl(4).plan([1, 2], 100, None) == {1: 4, 2: 4}
    assert SpeculationControl(4).plan([], 0, None) == {}


def test_a_step_that_was_interrupted_changes_little() -> None:
    world = World()
    world.run(300)
    world.control.stepped(1, 4, 500, 60.0, world.cost())
    world.control.stepped(1, 0, 500, 60.0, world.cost())
    assert world.run(200)[1] > 2.0


def test_a_new_request_shows_that_its_guesses_come_true_before_many_are_made() -> None:
    control = SpeculationControl(4)
    cost = StepCost(0.006, 0.003, 0.0, 0.0)
    for id in range(100):
        control.checked(id, 4, 4)
        control.forget(id)
    guesses, depths = 0, []
    for _ in range(128):
        depth = control.plan([1000], 100, cost).get(1000, 0)
        depths.append(depth)
        if depth:
            control.checked(1000, depth, 0)
            guesses += depth
        control.stepped(1, depth, 100, cost.seconds(1 + depth, 100), cost)
    assert depths[:2] == [1, 2], "one to begin with, since those of others came true"
    assert guesses <= 10
