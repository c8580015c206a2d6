"""The sampler: what a request has said changes what it says next, and its neighbours change nothing."""

from __future__ import annotations

import math

import pytest
import torch
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.runtime.sampler import Row, Sampler

VOCABULARY = 50


def batch(*ids: int, position: int = 4) -> Batch:
    return Batch(tuple(Work(id, 0, (1,) * position, (0,), samples=True) for id in ids))


def with_drafts(*drafts: int, position: int = 4) -> Batch:
    token_ids = (1,) * position + drafts
    return Batch((Work(1, 0, token_ids, (0,), samples=True, drafts=len(drafts)),))


def logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(1))


def flat(rows: int = 1, **liked: float) -> torch.Tensor:
    table = torch.zeros(rows, VOCABULARY)
    for token, value in liked.items():
        table[:, int(token[1:])] = value
    return table


def test_a_row_is_the_same_alone_and_among_others() -> None:
    params = [
        SamplingParams(9, temperature=0.0),
        SamplingParams(9, seed=5),
        SamplingParams(9, seed=6, top_k=5, presence_penalty=1.0),
        SamplingParams(9, seed=7, top_p=0.5, min_p=0.1, repetition_penalty=1.3),
        SamplingParams(9, seed=8, logit_bias={3: 4.0}, logprobs=2),
    ]
    together = Sampler()
    for id, own in enumerate(params):
        together.add(id, [1, 2, 3], own)
        together.heard(id, [4, 4, 5])
    all_rows = together.sample(batch(*range(5)), logits(5))
    for id, own in enumerate(params):
        alone = Sampler()
        alone.add(id, [1, 2, 3], own)
        alone.heard(id, [4, 4, 5])
        row = alone.sample(batch(id), logits(5)[id : id + 1])
        assert row.tokens[0] == all_rows.tokens[id]
        assert row.logprobs[0] == all_rows.logprobs[id]


@pytest.mark.parametrize(
    ("params", "said", "table", "expected"),
    [
        pytest.param(SamplingParams(9, 0.0), [7], flat(t7=1.0, t8=0.9), 7, id="greedy takes the likeliest"),
        pytest.param(
            SamplingParams(9, 0.0, presence_penalty=0.2), [7], flat(t7=1.0, t8=0.9), 8, id="presence counts once"
        ),
        pytest.param(
            SamplingParams(9, 0.0, presence_penalty=0.05), [7, 7, 7], flat(t7=1.0, t8=0.9), 7, id="presence not thrice"
        ),
        pytest.param(
            SamplingParams(9, 0.0, frequency_penalty=0.05), [7, 7, 7], flat(t7=1.0, t8=0.9), 8, id="frequency thrice"
        ),
        pytest.param(
            SamplingParams(9, 0.0, frequency_penalty=1.0), [], flat(t2=1.0, t8=0.9), 2, id="the prompt is not frequency"
        ),
        pytest.param(
            SamplingParams(9, 0.0, repetition_penalty=1.2), [], flat(t2=1.0, t8=0.9), 8, id="the prompt is repetition"
        ),
        pytest.param(SamplingParams(9, 0.0, logit_bias={8: 0.2}), [], flat(t7=1.0, t8=0.9), 8, id="bias lifts a token"),
        pytest.param(
            SamplingParams(9, 0.0, min_tokens=2, stop_token_ids=(7,)),
            [1],
            flat(t7=1.0, t8=0.9),
            8,
            id="not too early",
        ),
        pytest.param(
            SamplingParams(9, 0.0, min_tokens=2, stop_token_ids=(7,)),
            [1, 1],
            flat(t7=1.0, t8=0.9),
            7,
            id="not too late",
        ),
    ],
)
def test_greedy_with(params: SamplingParams, said: list[int], table: torch.Tensor, expected: int) -> None:
    sampler = Sampler()
    sampler.add(1, [2, 3], params)
    sampler.heard(1, said)
    assert sampler.sample(batch(1), table).tokens == [[expected]]


def test_seed_choice_and_position_decide_the_draw() -> None:
    def draws(seed: int, choice: int) -> list[int]:
        sampler = Sampler()
        sampler.add(1, [2], SamplingParams(99, seed=seed, choice=choice))
        return [sampler.sample(batch(1, position=at), flat()).tokens[0][0] for at in range(1, 30)]

    assert draws(5, 0) == draws(5, 0)
    assert draws(5, 0) != draws(5, 1), "n > 1 with one seed must not say the same n times"
    assert draws(5, 0) != draws(6, 0)
    assert len(set(draws(5, 0))) > 10


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(9, temperature=0.0), id="greedy"),
        pytest.param(SamplingParams(9, seed=3), id="drawn"),
        pytest.param(SamplingParams(9, seed=3, top_k=9, top_p=0.8, min_p=0.01), id="drawn from a few"),
        pytest.param(SamplingParams(9, 0.0, frequency_penalty=1.5, presence_penalty=0.5), id="with penalties"),
        pytest.param(SamplingParams(9, seed=3, repetition_penalty=1.5), id="drawn, with a penalty on the prompt too"),
        pytest.param(SamplingParams(9, 0.0, stop_token_ids=(3, 7), min_tokens=6), id="with a stop that is too early"),
        pytest.param(
            SamplingParams(9, seed=3, logit_bias={5: 3.0}, logprobs=3), id="with a bias and log probabilities"
        ),
    ],
)
@pytest.mark.parametrize("right", [0, 2, 3], ids=["no guess comes true", "two guesses come true", "all come true"])
def test_guesses_change_nothing_of_what_is_said(params: SamplingParams, right: int) -> None:
    plain = Sampler()
    plain.add(1, [1, 2, 3], params)
    plain.heard(1, [4, 4])
    said: list[int] = []
    known = []
    for at in range(right + 1):
        found = plain.sample(batch(1, position=4 + at), logits(4)[at : at + 1])
        said += found.tokens[0]
        known += found.logprobs[0] or []
        plain.heard(1, found.tokens[0])
    guesses = said[:right] + [(said[right] + 1) % VOCABULARY] * (3 - right)
    guessing = Sampler()
    guessing.add(1, [1, 2, 3], params)
    guessing.heard(1, [4, 4])
    sampled = guessing.sample(with_drafts(*guesses), logits(4))
    assert sampled.tokens == [said]
    assert sampled.logprobs == [known or None]


def test_another_models_guess_is_drawn_as_the_token_itself_will_be() -> None:
    sampler = Sampler()
    sampler.add(1, [2], SamplingParams(9, seed=5, frequency_penalty=0.7))
    rows = [Row(1, 4), Row(1, 5, (6,)), Row(1, 6, (6, 6))]
    drawn = sampler.draw(rows, logits(3))
    assert [token for row in range(3) for token in sampler.draw([rows[row]], logits(3)[row : row + 1])] == drawn
    sampled = sampler.sample(with_drafts(drawn[0], 9), logits(3)).tokens[0]
    assert sampled[0] == drawn[0]


def test_log_probabilities_are_those_of_the_unscaled_distribution() -> None:
    sampler = Sampler()
    sampler.add(1, [2], SamplingParams(9, temperature=0.01, logprobs=3))
    sampled = sampler.sample(batch(1), flat(t7=math.log(51)))
    assert sampled.tokens == [[7]]
    assert sampled.logprobs[0] is not None
    [found] = sampled.logprobs[0]
    assert found.chosen == pytest.approx(math.log(0.51), abs=1e-5)
    assert (found.top_ids[0], len(found.top)) == (7, 3)
    assert found.top[1:] == pytest.approx([math.log(0.01)] * 2, abs=1e-4)


def test_one_who_has_left_while_its_batch_was_in_flight_disturbs_nobody() -> None:
    sampler = Sampler()
    sampler.add(2, [2], SamplingParams(9, temperature=0.0))
    assert sampler.sample(batch(1, 2), flat(2, t7=1.0)).tokens == [[7], [7]]


def test_a_step_that_samples_nothing() -> None:
    work = Work(1, 0, (1, 2), (0,), samples=False)
    assert Sampler().sample(Batch((work,)), torch.empty(0, VOCABULARY)).tokens == []
