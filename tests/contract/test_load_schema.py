"""What the engine writes on /load is what docs/seams.md shows, and what the operator reads."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.link.messages import Output, Outputs, Ready, Stats, StepCost, ToRuntime, ToServer
from tidegate_engine.server.answers import Answer, Choice
from tidegate_engine.server.engine import Engine, RuntimeGone
from tidegate_engine.server.load import LARGEST, Boot, State, load
from tidegate_engine.server.sketch import GAMMA, SMALLEST
from tidegate_engine.server.sketch import LARGEST as LONGEST
from tidegate_engine.server.telemetry import Telemetry
from tidegate_operator import observed_load, observed_sketch

SEAMS = Path(__file__).parents[2] / "docs" / "seams.md"


class Link:
    def __init__(self, *messages: ToServer) -> None:
        self.messages = list(messages)

    def send(self, message: ToRuntime) -> None:
        return

    async def receive(self) -> ToServer | None:
        return self.messages.pop(0) if self.messages else None


async def busy_engine() -> tuple[Engine, Telemetry]:
    """One request done, one that streams, one that waits."""
    telemetry = Telemetry()
    ready = Ready(2048, 16, 8192, 49152, 32, "", {})
    cost = StepCost(0.011, 0.0021, 1.1e-6, 0.04)
    done = Output(1, [1], None, FinishReason.LENGTH)
    first = Outputs([Output(1, [1]), Output(2, [1])], Stats(2, 1, 96, 1, 4, 900, 5, 2, 0.01, 0.02))
    second = Outputs([done, Output(2, [1])], Stats(1, 1, 64, 2, 4, 900, 5, 4, 0.01, 0.02, cost))
    engine = Engine(Link(ready, first, second), telemetry, 32, 256)
    for id in ("one", "two", "three"):
        engine.submit(Answer(id, 0, 1.0, [Choice(0, [1], SamplingParams(max_tokens=9), [b"a"] * 2)]))
    with pytest.raises(RuntimeGone):
        await engine.run()
    return engine, telemetry


@pytest.mark.parametrize("state", ["starting", "ready", "draining"])
async def test_the_operator_reads_what_a_busy_engine_writes(state: State) -> None:
    engine, telemetry = await busy_engine()
    report = observed_load.read_load(load(engine, telemetry, Boot("9f2c", 0.0), 32, state, 1e6))
    assert (report.boot, report.state, report.slots) == ("9f2c", state, 32)
    assert (report.running, report.waiting) == (1, 1)
    assert (report.kv_blocks.total, report.kv_blocks.used) == (2048, 64)
    assert (report.counters.received, report.counters.finished, report.counters.rejected) == (3, 1, 0)
    assert (report.counters.prompt_tokens, report.counters.cached_tokens) == (900, 5)
    assert (report.counters.generated_tokens, report.counters.preemptions, report.counters.steps) == (4, 4, 2)
    counts = {name: sum(n for _, n in getattr(report.sketches, name).bins) for name in ("ttft", "e2e")}
    assert counts == {"ttft": 2, "e2e": 1}
    assert sum(n for _, n in report.waiting_ages.bins) == 1
    assert report.step_model == observed_load.StepModel(a=0.011, b=0.0021, c=1.1e-6, error=0.04)


async def test_the_operator_reads_an_engine_that_has_only_begun() -> None:
    report = observed_load.read_load(load(None, Telemetry(), Boot("b", 0.0), 32, "starting", 0.5))
    assert (report.state, report.running, report.waiting, report.last_step_age_s) == ("starting", 0, 0, None)


async def test_the_operator_reads_an_engine_that_says_nothing_of_its_steps() -> None:
    said = json.loads(load(*(await busy_engine()), Boot("b", 0.0), 32, "ready", 1e6))
    for older in (said | {"step_model": None}, {name: part for name, part in said.items() if name != "step_model"}):
        assert observed_load.read_load(json.dumps(older).encode()).step_model is None


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), "fast", None])
async def test_a_step_model_that_cannot_be_is_not_read(wrong: Any) -> None:
    said = json.loads(load(*(await busy_engine()), Boot("b", 0.0), 32, "ready", 1e6))
    said["step_model"]["b"] = wrong
    with pytest.raises(observed_load.UnreadableLoad, match="step_model"):
        observed_load.read_load(json.dumps(said).encode())


async def test_the_fields_are_those_of_the_seam() -> None:
    example = re.search(r"## `GET /load`.*?```json\n(.*?)```", SEAMS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    text = example[1].replace("{…}", "{}").replace("…", "")
    assert keys(json.loads(text)) == keys(json.loads(load(*(await busy_engine()), Boot("b", 0.0), 32, "ready", 2.0)))


def keys(value: dict[str, Any]) -> dict[str, Any]:
    """Names and their nesting; a sketch is a leaf."""
    return {
        name: keys(part) if isinstance(part, dict) and part and "gamma" not in part else None
        for name, part in value.items()
        if not (isinstance(part, dict) and (not part or "gamma" in part))
    } | {name: "sketch" for name, part in value.items() if isinstance(part, dict) and (not part or "gamma" in part)}


def test_both_sides_count_in_the_same_bins() -> None:
    assert pytest.approx(observed_sketch.GAMMA) == GAMMA
    assert observed_load.MAX_LOAD_BYTES == LARGEST
    for edge in (SMALLEST, LONGEST):
        assert observed_sketch.LOWEST_BIN <= math.ceil(math.log(edge, GAMMA)) <= observed_sketch.HIGHEST_BIN
