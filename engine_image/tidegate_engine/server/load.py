"""`GET /load`: what the operator reads from a pod to choose the number of replicas; at most 24 KiB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from tidegate_engine.server.engine import Engine
from tidegate_engine.server.sketch import Sketch, SketchSnapshot
from tidegate_engine.server.telemetry import Telemetry

LARGEST = 24 * 1024
"""Bytes."""
State = Literal["starting", "ready", "draining"]


class KVBlocks(msgspec.Struct, frozen=True):
    """Blocks of the key and value cache; `used` are those that running requests hold."""

    total: int
    used: int


class Counters(msgspec.Struct, frozen=True):
    """Totals since `boot`. Requests are HTTP requests; tokens are those the runtime computed, or found cached."""

    received: int
    finished: int
    rejected: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    preemptions: int
    steps: int


class StepModel(msgspec.Struct, frozen=True):
    """What a step takes here, seconds: a + b * tokens computed + c * tokens held; `error` is relative."""

    a: float
    b: float
    c: float
    error: float


class Sketches(msgspec.Struct, frozen=True):
    """Latencies of requests since `boot`, in seconds."""

    ttft: SketchSnapshot
    tpot: SketchSnapshot
    e2e: SketchSnapshot


class Load(msgspec.Struct, frozen=True):
    """The whole snapshot; docs/seams.md says what each part means."""

    version: int
    boot: str
    state: State
    uptime_s: float
    slots: int
    running: int
    waiting: int
    oldest_waiting_s: float
    oldest_unfinished_s: float
    kv_blocks: KVBlocks
    counters: Counters
    last_step_age_s: float | None
    sketches: Sketches
    waiting_ages: SketchSnapshot
    running_tpot: SketchSnapshot
    step_model: StepModel | None


@dataclass(frozen=True, slots=True)
class Boot:
    """This start of the process: a nonce, and when it was (seconds of the monotonic clock)."""

    nonce: str
    at: float


def load(engine: Engine | None, telemetry: Telemetry, boot: Boot, slots: int, state: State, now: float) -> bytes:
    """The snapshot as JSON. Where wild latencies would make it too large, their lowest bins are folded into one."""
    for max_bins in (None, 256, 128, 64, 32, 16):
        body = msgspec.json.encode(_snapshot(engine, telemetry, boot, slots, state, now, max_bins))
        if len(body) <= LARGEST:
            break
    return body


def _snapshot(
    engine: Engine | None, telemetry: Telemetry, boot: Boot, slots: int, state: State, now: float, max_bins: int | None
) -> Load:
    answers = list(engine.answers) if engine else []
    waiting = [now - answer.arrival for answer in answers if answer.first_at is None]
    paces = [
        (choice.last_at - choice.first_at) / (choice.tokens - 1)
        for answer in answers
        for choice in answer.choices
        if choice.tokens > 1 and choice.first_at is not None and choice.last_at is not None
    ]
    ready = engine.ready if engine else None
    stats = telemetry.stats
    cost = stats.step_cost
    return Load(
        version=1,
        boot=boot.nonce,
        state=state,
        uptime_s=round(now - boot.at, 3),
        slots=ready.slots if ready else slots,
        running=len(answers) - len(waiting),
        waiting=len(waiting),
        oldest_waiting_s=round(max(waiting, default=0.0), 3),
        oldest_unfinished_s=round(max((now - answer.arrival for answer in answers), default=0.0), 3),
        kv_blocks=KVBlocks(ready.kv_blocks if ready else 0, stats.kv_blocks_used),
        counters=Counters(
            telemetry.received,
            telemetry.finished,
            telemetry.rejected,
            stats.prompt_tokens,
            stats.cached_tokens,
            stats.generated_tokens,
            stats.preemptions,
            stats.steps,
        ),
        last_step_age_s=None if telemetry.last_step_at is None else round(now - telemetry.last_step_at, 3),
        sketches=Sketches(*(sketch.snapshot(max_bins) for sketch in (telemetry.ttft, telemetry.tpot, telemetry.e2e))),
        waiting_ages=Sketch(waiting).snapshot(max_bins),
        running_tpot=Sketch(paces).snapshot(max_bins),
        step_model=None if cost is None else StepModel(cost.a, cost.b, cost.c, cost.error),
    )
