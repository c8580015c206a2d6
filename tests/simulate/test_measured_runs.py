"""Does the simulator repeat what was measured? Scored on the half of each run that no coefficient was fitted to."""

from __future__ import annotations

import pytest
from tidegate_lab.calibrate.measured import read_measured
from tidegate_lab.calibrate.score import MEASURES, PERCENTS, compare
from tidegate_lab.simulate.engine import ENGINES
from tidegate_lab.simulate.exact import ExactReplica
from tidegate_lab.simulate.fixed import serve_with
from tidegate_lab.traffic.named import recorded

RUNS = {
    "rtx4090-llama-8b": "RTX4090_Llama-3.1-8B",
    "rtxpro6000-llama-8b": "RTXPRO6000_Llama-3.1-8B",
    "rtxpro6000x2-qwen3-32b": "RTXPRO6000_Qwen3-32B",
}
SECOND_HALF = slice(150, None)


@pytest.mark.parametrize("engine", RUNS)
def test_a_run_that_was_measured_is_repeated_within_five_percent(engine: str) -> None:
    measured = read_measured(recorded(f"vllm_runs/{RUNS[engine]}/requests.jsonl"))
    lines = compare(measured, serve_with(1, measured.trace, ENGINES[engine]), SECOND_HALF)
    assert [(line.measure, line.percent) for line in lines] == [(m, p) for m in MEASURES for p in PERCENTS]
    bound = {("TTFT", 99): 0.10}
    wrong = [line for line in lines if abs(line.error) > bound.get((line.measure, line.percent), 0.05)]
    assert not wrong


def test_the_engines_own_scheduler_gives_the_same_score_step_by_step() -> None:
    engine = ENGINES["rtx4090-llama-8b"]
    measured = read_measured(recorded(f"vllm_runs/{RUNS[engine.name]}/requests.jsonl"))
    leapt = serve_with(1, measured.trace, engine)
    replica = ExactReplica(engine)
    for index, (at, prompt, output) in enumerate(
        zip(measured.trace.at, measured.trace.prompt, measured.trace.output, strict=True)
    ):
        replica.submit(index, float(at), int(prompt), int(output))
    replica.advance(float("inf"))
    assert replica.counts.preemptions == leapt.preemptions > 50
    assert dict(replica.take_first_tokens()) == pytest.approx(dict(enumerate(leapt.first_token_at)))
    assert dict(replica.take_finished()) == pytest.approx(dict(enumerate(leapt.finished_at)))
