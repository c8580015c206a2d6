"""Choosing tokens without leaving the device, for requests of which nothing but temperature, top-k, top-p and min-p is
asked. The random numbers are those of `uniform`: who is sampled here gets the tokens that the Sampler would choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.step import Batch
from tidegate_engine.runtime.packing import to_device
from tidegate_engine.runtime.uniform import uniforms

Sample = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""See kernels.sampling.sample."""


def is_simple(params: SamplingParams) -> bool:
    """Whether a request's tokens hang on its logits and numbers alone, so that a step can be made before they are
    known."""
    penalised = params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
    early = params.min_tokens > 0 and params.stop_token_ids and not params.ignore_eos
    told = params.logprobs is not None or params.prompt_logprobs is not None or params.embed
    return not (penalised or early or told or params.logit_bias or params.grammar)


class DeviceSampler:
    """What requests are sampled with, as tensors that are made anew only when other requests are sampled."""

    def __init__(self, sample: Sample, device: str) -> None:
        self._sample, self._device = sample, device
        self._params: dict[int, SamplingParams] = {}
        self._ids: list[int] = []
        self._greedy = True
        self._numbers: tuple[Tensor, ...] = ()
        self._seeds = self._choices = np.zeros(0, dtype=np.uint64)

    def add(self, id: int, params: SamplingParams) -> None:
        """Get to know a request that `is_simple`. Raises ValueError for another."""
        if not is_simple(params):
            raise ValueError(f"request {id}: {params} needs the sampler on the host")
        self._params[id] = params

    def remove(self, id: int) -> None:
        """Forget a request that has ended; one that is not known is no news."""
        self._params.pop(id, None)

    def __call__(self, batch: Batch, ids: Sequence[int], logits: Tensor) -> Tensor:
        """A token for each row of logits float32 [rows, V], int64 on the device; `ids` says whose each is."""
        if list(ids) != self._ids:
            self._prepare(ids)
        if self._greedy:
            return logits.argmax(dim=-1)
        ends = {part.id: part.start + len(part.token_ids) for part in batch.work}
        positions = np.array([ends[id] for id in ids], dtype=np.uint64)
        drawn = torch.from_numpy(uniforms(self._seeds, self._choices, positions))
        if self._device.startswith("cuda"):
            drawn = drawn.pin_memory().to(self._device, non_blocking=True)
        temperature, top_k, top_p, min_p = self._numbers
        return self._sample(logits, temperature, top_k, top_p, min_p, drawn)

    def _prepare(self, ids: Sequence[int]) -> None:
        # A request that was aborted while its step was in flight is not known any more; its token is thrown away.
        params = [self._params.get(id, SamplingParams(1, temperature=0.0)) for id in ids]
        self._ids = list(ids)
        self._greedy = all(one.temperature == 0 for one in params)
        self._seeds = np.array([one.seed % 2**64 for one in params], dtype=np.uint64)
        self._choices = np.array([one.choice for one in params], dtype=np.uint64)
        self._numbers = (
            to_device([one.temperature for one in params], torch.float32, self._device),
            to_device([max(0, one.top_k) for one in params], torch.int64, self._device),
            to_device([one.top_p for one in params], torch.float32, self._device),
            to_device([one.min_p for one in params], torch.float32, self._device),
        )
