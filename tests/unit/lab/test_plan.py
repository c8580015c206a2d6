"""How many replicas a load needs: the least that will do, or why none will."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tidegate_lab.cli import main
from tidegate_lab.plan.needed import Fixed, NeverEnough, Wanted, attaining, fixed, floors, following
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.fixed import serve_with
from tidegate_lab.simulate.scenario import Targets
from tidegate_lab.traffic.synthetic import Lengths, Stage, constant, stages

ENGINE = EngineModel(name="small", step=StepModel(0.02, 0.0002, 1e-6), slots=8, kv_tokens=8_000, token_budget=512)
LENGTHS = Lengths(np.array([100, 400], np.int32), np.array([50, 20], np.int32))
WANTED = Wanted(Targets(ttft_s=1.0, tpot_s=0.1))


@pytest.mark.parametrize("rate", [0.5, 4.0, 20.0])
def test_the_number_found_is_enough_and_one_less_is_not(rate: float) -> None:
    trace = constant("t", rate, 120.0, LENGTHS, seed=1)
    found = fixed(trace, ENGINE, WANTED)
    assert found.attainment >= 0.99
    assert attaining(serve_with(found.replicas, trace, ENGINE), WANTED.targets).mean() == pytest.approx(
        found.attainment
    )
    if found.replicas > 1:
        assert attaining(serve_with(found.replicas - 1, trace, ENGINE), WANTED.targets).mean() < 0.99


def test_more_traffic_needs_no_fewer_replicas_and_a_stricter_target_neither() -> None:
    needed = [fixed(constant("t", rate, 120.0, LENGTHS, seed=1), ENGINE, WANTED).replicas for rate in (1, 5, 10, 20)]
    assert needed == sorted(needed) and needed[-1] > needed[0]
    strict = Wanted(Targets(ttft_s=0.25, tpot_s=0.05))
    assert fixed(constant("t", 10, 120.0, LENGTHS, seed=1), ENGINE, strict).replicas >= needed[2]


def test_following_a_step_takes_few_before_it_and_many_after() -> None:
    trace = stages("t", [Stage(1, 300), Stage(15, 300)], LENGTHS, seed=2)
    found = following(trace, ENGINE, WANTED, 300.0)
    assert [isinstance(window, Fixed) for window in found] == [True, True]
    assert found[0].replicas < found[1].replicas == fixed(trace, ENGINE, WANTED).replicas


def test_a_request_alone_takes_what_its_steps_take() -> None:
    trace = constant("t", 1.0, 60.0, Lengths.fixed(100, 3), seed=1)
    ttft, tpot = floors(trace, ENGINE, WANTED)
    assert (ttft.target, ttft.attained) == ("ttft", 1.0)
    assert ttft.at_share_s == pytest.approx(0.02 + 100 * 0.0002 + 100 * 1e-6)
    assert tpot.at_share_s == pytest.approx(0.02 + 0.0002 + 101.5e-6)


def test_requests_that_never_fit_are_told_apart_from_slow_ones() -> None:
    trace = constant("t", 1.0, 60.0, Lengths.fixed(9_000, 3), seed=1)
    with pytest.raises(NeverEnough, match=r"100\.0% of the requests, from 9003 tokens on, never fit the 8000 tokens"):
        floors(trace, ENGINE, WANTED)


def test_targets_that_are_attainable_one_by_one_and_not_together_are_told() -> None:
    # Answers of one token have no pace, and their prompts are long: half of the requests fail each target.
    lengths = Lengths(np.array([2_000, 10], np.int32), np.array([1, 50], np.int32))
    half = Wanted(Targets(ttft_s=0.2, tpot_s=0.01), share=0.4)
    with pytest.raises(NeverEnough, match=r"each target by itself is within reach, but even alone .* only 0\.0%"):
        floors(constant("t", 1.0, 60.0, lengths, seed=1), ENGINE, half)


def told(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    code = main(["plan", "--engine", "0.02,0.0002,1e-6", *flags])
    return code, capsys.readouterr().out


def test_the_command_tells_replicas_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--rate", "6", "--prompt-tokens", "200", "--output-tokens", "40", "--cost-per-replica-hour", "2")
    code, out = told(capsys, *flags)
    assert code == 0
    row = re.search(r"^a fixed number +(\d+) +([\d.]+)% +([\d.]+) +([\d.]+) +[\d.]+$", out, re.M)
    assert row is not None
    replicas, _, hours, cost = row.groups()
    assert float(hours) == pytest.approx(int(replicas) * 2100 / 3600, abs=0.01)
    assert float(cost) == pytest.approx(2 * int(replicas) * 2100 / 3600, abs=0.01)


def test_a_target_below_the_floor_is_named_with_its_floor_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = told(capsys, "--rate", "1", "--prompt-tokens", "2000", "--tpot", "10ms", "--ttft", "5s")
    assert code == 1
    assert re.search(
        r"tpot +2\d\.?\d* ms  target 10ms: not attainable by any number of replicas, 0\.00% are within it; a faster",
        out,
    )
    assert "ttft" in out and out.count("not attainable") == 1


def test_neither_trace_nor_rate_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 1
    assert capsys.readouterr().err.startswith("tidegate plan: --trace or --rate: give one of them")


def test_more_requests_than_memory_holds_are_refused_before_they_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rate", "1e6"]) == 1
    assert capsys.readouterr().err.startswith("tidegate plan: --rate 1e+06: makes 2,100,000,000 requests")
