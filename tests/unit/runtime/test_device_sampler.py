"""The sampler that stays on the device chooses what the one on the host chooses, for the requests that it takes."""

from __future__ import annotations

import pytest
import torch
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.kernels import sampling
from tidegate_engine.runtime.device_sampler import DeviceSampler, is_simple
from tidegate_engine.runtime.sampler import Sampler

MIXED = {
    1: SamplingParams(9, 0.0),
    2: SamplingParams(9, 0.8, seed=5, top_k=20),
    3: SamplingParams(9, 1.2, seed=-3, choice=2, top_p=0.9),
    4: SamplingParams(9, 1.0, seed=2**63, min_p=0.02),
}


def step(ids: list[int], position: int) -> Batch:
    return Batch(tuple(Work(id, position, (1,), (0,), samples=True) for id in ids))


def test_the_tokens_are_those_of_the_host_whatever_rows_the_requests_have() -> None:
    host, device = Sampler(), DeviceSampler(sampling.sample, "cpu")
    for id, params in MIXED.items():
        host.add(id, [2], params)
        device.add(id, params)
    for position in range(1, 40):
        batch = step([1, 2, 3, 4] if position % 3 else [3, 1], position)
        logits = torch.randn((len(batch.work), 60), generator=torch.Generator().manual_seed(position)) * 3
        order = [part.id for part in reversed(batch.work)]
        found = device(batch, order, logits.flip(0)).tolist()
        assert [[token] for token in reversed(found)] == host.sample(batch, logits.clone()).tokens


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(9, presence_penalty=0.1), id="presence penalty"),
        pytest.param(SamplingParams(9, repetition_penalty=1.1), id="repetition penalty"),
        pytest.param(SamplingParams(9, logit_bias={3: 1.0}), id="bias"),
        pytest.param(SamplingParams(9, min_tokens=2, stop_token_ids=(3,)), id="least number of tokens"),
        pytest.param(SamplingParams(9, logprobs=0), id="log probabilities"),
        pytest.param(SamplingParams(9, grammar="start: /a+/"), id="a grammar"),
    ],
)
def test_what_hangs_on_more_is_left_to_the_host(params: SamplingParams) -> None:
    assert not is_simple(params)
    with pytest.raises(ValueError, match="request 7"):
        DeviceSampler(sampling.sample, "cpu").add(7, params)
