"""Perplexity and divergence of a path, on logits that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from tidegate_bench.quality import TEXTS, quality_of
from tidegate_bench.workers.quality import CHUNK, WINDOW, measure

VOCABULARY = 4


def constant(*logits: float) -> Callable[[list[int]], Iterator[torch.Tensor]]:
    """A model that says the same whatever it reads."""

    def say(window: list[int]) -> Iterator[torch.Tensor]:
        for start in range(0, len(window), CHUNK):
            yield torch.tensor([logits] * len(window[start : start + CHUNK]))

    return say


UNIFORM = constant(0.0, 0.0, 0.0, 0.0)
TEXT = [0, 1] * WINDOW


def test_who_knows_nothing_has_the_vocabulary_as_perplexity() -> None:
    found = measure("text", TEXT, UNIFORM, UNIFORM)
    assert found.ours == pytest.approx(VOCABULARY)
    assert (found.ratio, found.mean_kl, found.same_choice) == (pytest.approx(1), pytest.approx(0), 1)


def test_every_position_counts_but_the_last_of_a_window_and_what_fills_none() -> None:
    assert measure("text", [*TEXT, 0, 1, 2], UNIFORM, UNIFORM).tokens == 2 * (WINDOW - 1)


def test_the_divergence_is_from_the_reference_to_ours() -> None:
    # KL((1/2, 1/2) || (1/4, 3/4)) = ln(2)/2 + ln(2/3)/2 over two tokens that can occur
    never = -1e9
    found = measure("text", TEXT, constant(0.0, math.log(3), never, never), constant(0.0, 0.0, never, never))
    assert found.mean_kl == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), rel=1e-4)
    assert found.same_choice == 0.0  # of equals the first is chosen


def test_a_path_that_is_surer_of_what_comes_has_the_lower_perplexity() -> None:
    better = measure("text", TEXT, constant(1.0, 1.0, 0.0, 0.0), UNIFORM)
    assert better.ratio < 1
    assert better.reference == pytest.approx(VOCABULARY)


def test_a_worker_prints_what_the_report_reads() -> None:
    line = '{"text": "prose", "tokens": 9, "reference": 2.0, "ours": 2.5, "mean_kl": 0.1, "same_choice": 0.5}\n'
    (found,) = quality_of(line)
    assert (found.text, found.ratio) == ("prose", 1.25)


def test_both_texts_are_there_with_their_licences() -> None:
    assert [text.stem for text in TEXTS] == ["prose", "code"]
    licences = (TEXTS[0].parent / "LICENSES.md").read_text()
    assert all(text.is_file() and f"`{text.name}`" in licences for text in TEXTS)
