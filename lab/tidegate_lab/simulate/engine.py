"""What one replica is: how long its steps take and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds of a step: a + b * tokens computed in it + c * tokens held in the cache by the requests it computes."""

    a: float
    b: float
    c: float

    def seconds(self, new_tokens: int, kv_tokens: int) -> float:
        """How long a step of this size takes."""
        return self.a + self.b * new_tokens + self.c * kv_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineModel:
    """One replica: decode first, chunked prefill, the newest is preempted when blocks run out."""

    name: str
    step: StepModel
    slots: int = 256
    """Requests that run at a time."""
    kv_tokens: int = 41_408
    block_size: int = 16
    token_budget: int = 2048
    """Tokens computed in a step."""
    most_queued: int | None = None
    """Requests that may wait; one more is refused with 429, which counts as a miss. None: no bound."""


# Fitted to runs of vLLM 0.19 by `tidegate calibrate`: how, and how far off they are, is in docs/simulator.md.
RTX4090_LLAMA_8B = EngineModel(
    name="rtx4090-llama-8b", step=StepModel(17.13e-3, 0.08781e-3, 1.255e-7), slots=256, kv_tokens=41_872
)
RTXPRO6000_LLAMA_8B = EngineModel(
    name="rtxpro6000-llama-8b", step=StepModel(12.02e-3, 0.04278e-3, 0.7409e-7), slots=128, kv_tokens=500_000
)
RTXPRO6000X2_QWEN3_32B = EngineModel(
    name="rtxpro6000x2-qwen3-32b", step=StepModel(14.13e-3, 0.1661e-3, 1.755e-7), slots=128, kv_tokens=400_000
)
ENGINES = {engine.name: engine for engine in (RTX4090_LLAMA_8B, RTXPRO6000_LLAMA_8B, RTXPRO6000X2_QWEN3_32B)}
