"""Sampling: what is kept, what is drawn, and that rows know nothing of each other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_engine.kernels.sampling import add_bias, apply_penalties, logprobs, sample

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
PROBABILITIES = torch.tensor([0.1, 0.4, 0.2, 0.3])


def _draw(logits: torch.Tensor, rows: list[dict[str, float]], uniform: list[float]) -> list[int]:
    columns = {name: torch.tensor([(OFF | row)[name] for row in rows]) for name in OFF}
    return sample(logits, **columns, uniform=torch.tensor(uniform, dtype=torch.float64)).tolist()


def _frequencies(row: dict[str, float], logits: torch.Tensor, count: int = 1000) -> list[float]:
    grid = [(at + 0.5) / count for at in range(count)]
    drawn = torch.tensor(_draw(logits.repeat(count, 1), [row] * count, grid))
    return (drawn.bincount(minlength=logits.shape[-1]) / count).tolist()


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        pytest.param({}, [0.1, 0.4, 0.2, 0.3], id="nothing set draws the distribution itself"),
        pytest.param({"temperature": 0.0}, [0, 1, 0, 0], id="temperature 0 takes the best"),
        pytest.param({"temperature": 1e-6}, [0, 1, 0, 0], id="a tiny temperature does not overflow"),
        pytest.param({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30], id="temperature 0.5 squares"),
        pytest.param({"top_k": 2}, [0, 4 / 7, 0, 3 / 7], id="top-k 2 keeps two"),
        pytest.param({"top_k": 9}, [0.1, 0.4, 0.2, 0.3], id="top-k over the vocabulary keeps all"),
        pytest.param({"top_p": 0.5}, [0, 4 / 7, 0, 3 / 7], id="top-p keeps the token that crosses it"),
        pytest.param({"top_p": 1e-9}, [0, 1, 0, 0], id="a tiny top-p keeps one"),
        pytest.param({"top_k": 2, "top_p": 0.5}, [0, 1, 0, 0], id="top-p is of what top-k has left"),
        pytest.param({"min_p": 0.6}, [0, 4 / 7, 0, 3 / 7], id="min-p is relative to the best"),
        pytest.param({"min_p": 1.0}, [0, 1, 0, 0], id="min-p 1 keeps the best"),
    ],
)
def test_frequencies(row: dict[str, float], wanted: list[float]) -> None:
    assert _frequencies(row, PROBABILITIES.log()) == pytest.approx(wanted, abs=2e-3)


def test_equal_logits_at_the_edge_of_top_k_are_kept_together() -> None:
    assert _frequencies({"top_k": 2}, torch.tensor([1.0, 3.0, 1.0, 1.0]))[2] > 0


def test_top_p_over_a_flat_vocabulary_looks_further_than_its_first_candidates() -> None:
    kept = sum(share > 0 for share in _frequencies({"top_p": 0.75}, torch.linspace(0, 1e-4, 1000), 2000))
    assert kept == pytest.approx(750, abs=2)


@pytest.mark.parametrize("uniform", [0.0, 0.5, math.nextafter(1, 0)], ids=["at 0", "in the middle", "just under 1"])
def test_a_forbidden_token_is_never_drawn(uniform: float) -> None:
    logits = torch.tensor([[-math.inf, 2.0, -math.inf, 2.0, -math.inf]])
    assert _draw(logits, [{}], [uniform])[0] in (1, 3)


_ROW = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "top_k": st.sampled_from([0, 1, 5, 70, 300]),
        "top_p": st.sampled_from([0.01, 0.5, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.1]),
    }
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(_ROW, st.floats(0, 1, exclude_max=True)), min_size=2, max_size=6), st.integers(0, 2**30))
def test_a_row_draws_the_same_alone_and_in_company(rows: list[tuple[dict[str, float], float]], seed: int) -> None:
    logits = torch.randn(len(rows), 400, generator=torch.Generator().manual_seed(seed)) * 3
    together = _draw(logits, [row for row, _ in rows], [uniform for _, uniform in rows])
    alone = [_draw(logits[at : at + 1], [row], [uniform])[0] for at, (row, uniform) in enumerate(rows)]
    assert together == alone


@settings(deadline=None, max_examples=60)
@given(_ROW, st.floats(0, 1, exclude_max=True), st.integers(0, 2**30))
def test_what_is_drawn_is_what_a_plain_sort_would_keep(row: dict[str, float], uniform: float, seed: int) -> None:
    logits = torch.randn(1, 400, generator=torch.Generator().manual_seed(seed)) * 3
    token = _draw(logits, [row], [uniform])[0]
    order = logits[0].argsort(descending=True)
    if row["temperature"] == 0:
        assert token == order[0]
        return
    probabilities = (logits[0, order].double() / row["temperature"]).softmax(0)
    kept = int(row["top_k"]) or len(order)
    probabilities[kept:] = 0
    before = probabilities.cumsum(0) - probabilities
    nearly = 1e-6  # float32 and float64 may disagree about the token on the edge
    allowed = (probabilities > 0) & (before <= (row["top_p"] + nearly) * probabilities.sum())
    allowed &= probabilities >= (row["min_p"] - nearly) * probabilities[0]
    assert token in order[allowed]


def test_penalties() -> None:
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5], [1.0, 1.0, 1.0, 1.0]])
    ids = torch.tensor([[0, 1, 2, 2], [3, 3, 3, 3]])
    counts = torch.tensor([[2.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    found = apply_penalties(
        logits,
        ids,
        counts,
        presence=torch.tensor([0.25, 9.0]),
        frequency=torch.tensor([0.5, 9.0]),
        repetition=torch.tensor([2.0, 1.0]),
    )
    # Token 0: 2 / 2 - 2 * 0.5 - 0.25. Token 1, only in the prompt: -2 * 2. Token 2: 1 / 2 - 0.5 - 0.25, once.
    assert found.tolist() == [[-0.25, -4.0, -0.25, 0.5], [1.0, 1.0, 1.0, 1.0]]


def test_bias_is_added_where_it_is_meant() -> None:
    found = add_bias(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([2, 0]), torch.tensor([1.5, -math.inf]))
    assert found.tolist() == [[0.0, 0.0, 1.5], [-math.inf, 0.0, 0.0]]


def test_logprobs_of_the_chosen_and_of_the_likeliest() -> None:
    chosen, ids, top = logprobs(PROBABILITIES.log().unsqueeze(0) + 7, torch.tensor([2]), 2)
    assert chosen.exp().item() == pytest.approx(0.2)
    assert ids.tolist() == [[1, 3]]
    assert top.exp()[0].tolist() == pytest.approx([0.4, 0.3])
    assert logprobs(PROBABILITIES.log().unsqueeze(0), torch.tensor([2]), 0)[1].shape == (1, 0)


@pytest.mark.parametrize("row", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 0.0}], ids=str)
def test_a_row_of_nan_draws_some_token_of_the_vocabulary_and_spares_its_neighbours(row: dict[str, float]) -> None:
    logits = torch.stack([torch.full((4,), math.nan), PROBABILITIES.log()])
    damaged, sound = _draw(logits, [row, {"temperature": 0.0}], [0.999, 0.5])
    assert 0 <= damaged < 4
    assert sound == 1
