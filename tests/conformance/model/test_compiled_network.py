"""The compiled library's pass over a whole network computes what the network computes layer by layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from compiled_kernels import skip_without_them
from forward_steps import Sequences
from model_file import smollm2
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.load import Network
from tidegate_engine.model.native import NativeLlama

PROMPTS = [[1, 5000, 17, 301, 9], list(range(100, 140)), [7]]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    skip_without_them()
    found = load(smollm2(), Shard(), "auto", None)
    assert isinstance(found.network, NativeLlama), found.kernels
    return found


@pytest.mark.model
def test_as_layer_by_layer(model: LoadedModel) -> None:
    assert isinstance(model.network, NativeLlama)
    # Norms and rotations round otherwise there, which may move an activation to the next of its 255 steps.
    found = Sequences(model, PROMPTS, 64)
    by_layers = Sequences(_with(model, model.network.by_layers), PROMPTS, 64)
    assert _divergence(by_layers.step(), found.step()) < 0.02


@pytest.mark.model
def test_near_the_exact_network(model: LoadedModel) -> None:
    exact = Sequences(load(smollm2(), Shard(), "float32", None), PROMPTS, 64).step()
    assert _divergence(exact, Sequences(model, PROMPTS, 64).step()) < 0.05


@pytest.mark.model
def test_the_same_bits_alone_in_chunks_and_beside_others(model: LoadedModel) -> None:
    together = Sequences(model, PROMPTS, 64).step()
    for row, prompt in enumerate(PROMPTS):
        alone = Sequences(model, [prompt], 64)
        for _ in range(0, len(prompt) - 3, 3):
            alone.step([3])
        assert torch.equal(alone.step()[0], together[row])


def _with(model: LoadedModel, network: Network) -> LoadedModel:
    return replace(model, network=network)


def _divergence(wanted: torch.Tensor, found: torch.Tensor) -> float:
    """The largest of the rows' Kullback-Leibler divergences."""
    wanted, found = wanted.log_softmax(-1), found.log_softmax(-1)
    return float((wanted.exp() * (wanted - found)).sum(-1).max())
