"""What a load writes of its requests is what calibration reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tidegate_lab.calibrate.measured import read_measured
from tidegate_lab.cli import main
from tidegate_lab.load.arrivals import Arrival, recorded
from tidegate_lab.load.prompts import lengths
from tidegate_lab.load.run import Plan
from tidegate_lab.load.samples_file import write_samples
from tidegate_lab.load.stream import Outcome
from tidegate_lab.traffic.read import read_trace

OUTCOMES = (
    Outcome(1, due_s=2.0, ttft_s=0.5, gaps_s=[0.1, 0.2], prompt_tokens=30, tokens=3, e2e_s=0.8),
    Outcome(0, due_s=1.0, ttft_s=0.25, gaps_s=[], prompt_tokens=20, tokens=1, e2e_s=0.25),
    Outcome(2, due_s=3.0, failure="timeout"),
)


def test_completed_requests_are_written_in_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    assert write_samples(path, OUTCOMES) == 2
    first = json.loads(path.read_text().splitlines()[0])
    assert (first["arrived_s"], first["first_token_s"], first["last_token_s"]) == (1.0, 1.25, 1.25)
    measured = read_measured(path)
    assert measured.ttft == pytest.approx([0.25, 0.5])
    assert measured.e2e == pytest.approx([0.25, 0.8])
    assert read_trace(path).prompt.tolist() == [20, 30]


def test_lengths_spread_evenly_about_what_is_asked_and_are_the_same_for_a_seed() -> None:
    drawn = [lengths(5, number, 100, 40, 0.5) for number in range(400)]
    assert drawn == [lengths(5, number, 100, 40, 0.5) for number in range(400)]
    prompts, answers = zip(*drawn, strict=True)
    assert (min(prompts) >= 50, max(prompts) <= 150, min(answers) >= 20, max(answers) <= 60) == (True,) * 4
    assert sum(prompts) / 400 == pytest.approx(100, rel=0.05)
    assert lengths(5, 1, 100, 40, 0.0) == (100, 40)


def test_a_part_of_a_trace_is_written_read_and_sent_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "part.jsonl"
    flags = ["--start", "60", "--seconds", "120", "--longest", "3000", "--write", str(path)]
    assert main(["trace", "--trace", "azure-conv", *flags]) == 0
    assert "requests of more than 3000 tokens are left out" in capsys.readouterr().out
    arrivals, again = recorded(path), read_trace(path)
    assert [arrival.prompt_tokens for arrival in arrivals] == again.prompt.tolist()
    assert max(arrival.prompt_tokens + arrival.output_tokens for arrival in arrivals) <= 3000
    plan = Plan(url="http://x", model="m", trace=arrivals, requests=len(arrivals), duration_s=arrivals[-1].at_s)
    assert list(plan.times()) == pytest.approx(again.at.tolist())
    ask = plan.ask(3, 0.0)
    assert (ask.max_tokens, ask.body()["ignore_eos"]) == (arrivals[3].output_tokens, True)
    assert len(ask.prompt.split()) == pytest.approx(arrivals[3].prompt_tokens, rel=0.2)


def test_bounds_hold_for_a_trace_too() -> None:
    trace = tuple(Arrival(at, 10, 5) for at in (0.0, 1.0, 2.0, 3.0))
    assert list(Plan(url="u", model="m", trace=trace, requests=3, duration_s=9).times()) == [0, 1, 2]
    assert list(Plan(url="u", model="m", trace=trace, requests=9, duration_s=1.5).times()) == [0, 1]


@pytest.mark.parametrize("text", ["[1]\n", '{"arrived_s": 1}\n', "no\n"])
def test_what_is_no_trace_to_send_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"x\.jsonl:1: is no request; `tidegate trace --write` makes such a file"):
        recorded(tmp_path / "x.jsonl")
