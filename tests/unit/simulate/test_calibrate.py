"""From a measured run to an engine model: what is read, what is found, and what is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tidegate_lab.calibrate.fit import fit
from tidegate_lab.calibrate.measured import Names, read_measured
from tidegate_lab.calibrate.score import compare, table
from tidegate_lab.calibrate.search import least
from tidegate_lab.cli import main
from tidegate_lab.simulate.engine import ENGINES, EngineModel, StepModel
from tidegate_lab.simulate.engine_file import EngineError, engine_of, written
from tidegate_lab.simulate.fixed import Served, serve_with
from tidegate_lab.traffic.synthetic import Lengths, constant
from tidegate_lab.traffic.table import TraceError

TRUE = EngineModel(name="true", step=StepModel(0.02, 0.0005, 2e-6), slots=16, kv_tokens=8_000, token_budget=256)
TRAFFIC = constant("t", 1.0, 90.0, Lengths(np.array([50, 400, 120], np.int32), np.array([60, 20, 1], np.int32)), seed=3)


def written_run(path: Path, served: Served) -> Path:
    """As `tidegate load --samples` writes it."""
    rows = zip(
        served.trace.at.tolist(),
        served.trace.prompt.tolist(),
        served.trace.output.tolist(),
        served.first_token_at.tolist(),
        served.finished_at.tolist(),
        strict=True,
    )
    names = ("arrived_s", "prompt_tokens", "output_tokens", "first_token_s", "last_token_s")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def test_a_bowl_is_searched_to_its_bottom() -> None:
    point, value = least(lambda p: float((p[0] - 3) ** 2 + 10 * (p[1] + 1) ** 2), (0.0, 0.0), (0.5, 0.5))
    assert point == pytest.approx([3, -1], abs=1e-2)
    assert value < 1e-4


def test_a_model_fitted_to_a_run_of_a_known_one_behaves_as_that_one_on_other_traffic() -> None:
    half = slice(0, 45)
    fitted = fit(serve_with(1, TRAFFIC, TRUE), TRUE, half).engine
    other = constant("o", 1.3, 60.0, Lengths(np.array([90, 300], np.int32), np.array([30, 50], np.int32)), seed=8)
    lines = compare(serve_with(1, other, TRUE), serve_with(1, other, fitted), slice(None))
    assert max(abs(line.error) for line in lines) < 0.03
    assert fitted.step.b == pytest.approx(TRUE.step.b, rel=0.1)


def test_a_run_is_read_as_it_was_written_and_scores_nothing_off_against_itself(tmp_path: Path) -> None:
    true = serve_with(1, TRAFFIC, TRUE)
    read = read_measured(written_run(tmp_path / "run.jsonl", true))
    assert read.first_token_at == pytest.approx(true.first_token_at)
    lines = compare(read, true, slice(None))
    assert max(abs(line.error) for line in lines) < 1e-6
    assert len(table(lines).splitlines()) == 4


def test_columns_of_any_name_in_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("at_ms,in,out,one,two\n2000,5,3,2100,2300\n1000,5,1,1100,1100\n")
    names = Names(time="at_ms", prompt="in", output="out", first="one", last="two")
    read = read_measured(tmp_path / "x.csv", names)
    assert read.ttft == pytest.approx([0.1, 0.1])
    assert read.e2e == pytest.approx([0.1, 0.3])
    assert read.tpot == pytest.approx([0.0, 0.1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrived_s,prompt_tokens,output_tokens\n1,2,3\n", "tells no first and last token"),
        (
            "arrived_s,prompt_tokens,output_tokens,first_token_s,last_token_s\n5,1,1,4,6\n",
            ":2: its tokens do not follow its arrival; are the columns of one clock?",
        ),
        (
            "arrived_s,prompt_tokens,output_tokens,first_token_s,last_token_s\n5,1,1,,6\n",
            ":2: first_token_s '' is no time",
        ),
    ],
)
def test_what_is_no_run_is_told_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(TraceError) as refusal:
        read_measured(tmp_path / "x.csv")
    assert message in str(refusal.value)


def test_an_engine_is_named_filed_or_given_by_numbers(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(written(TRUE))
    assert engine_of(str(path)) == TRUE
    assert engine_of("rtx4090-llama-8b") is ENGINES["rtx4090-llama-8b"]
    assert engine_of("0.01,0.0001,1e-7").step == StepModel(0.01, 0.0001, 1e-7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a100", "engine 'a100': is no file, no a,b,c, and none of rtx4090-llama-8b"),
        ("0.1,-1,0", "engine '0.1,-1,0': give a,b,c as three numbers of seconds, none negative"),
        ("0.1,nan,0", "engine '0.1,nan,0': give a,b,c"),
    ],
)
def test_what_names_no_engine(text: str, message: str) -> None:
    with pytest.raises(EngineError) as refusal:
        engine_of(text)
    assert str(refusal.value).startswith(message)


def test_a_file_that_holds_no_engine_says_which_field(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(written(TRUE).replace('"slots": 16', '"slots": 0'))
    with pytest.raises(EngineError, match="slots: Input should be greater than or equal to 1"):
        engine_of(str(path))


def test_the_command_scores_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = tmp_path / "true.json"
    engine.write_text(written(TRUE))
    run = written_run(tmp_path / "run.jsonl", serve_with(1, TRAFFIC, TRUE))
    again = tmp_path / "again.json"
    assert main(["calibrate", str(run), "--engine", str(engine), "--share", "0.3", "--write", str(again)]) == 0
    told = capsys.readouterr().out
    assert "true: a = 20 ms, b = 0.5 ms a token computed" in told
    assert told.count("end to end") == 2
    assert engine_of(str(again)) == TRUE


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "nowhere.jsonl"]) == 1
    assert capsys.readouterr().err == "tidegate calibrate: nowhere.jsonl: cannot be read (No such file or directory)\n"


RUN = "arrived_s,first_token_s,last_token_s,prompt_tokens,output_tokens\n"


def test_answers_of_one_token_have_no_time_between_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.csv").write_text(RUN + "0,0.1,0.1,10,1\n1,1.1,1.1,10,1\n")
    assert main(["calibrate", str(tmp_path / "run.csv")]) == 0
    told = capsys.readouterr().out
    ttft = re.search(r"^TTFT +0\.1 +([\d.]+)", told, re.M)
    assert ttft is not None and float(ttft.group(1)) == pytest.approx(0.1, rel=0.01)
    assert re.search(r"^TPOT +-$", told, re.M)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        pytest.param("0,0,0,10,9\n1,1,1,10,9\n", "tokens took no time at all", id="all at once"),
        pytest.param(
            "0,0.1,0.5,2000000,9\n1,1.1,1.6,10,9\n",
            "the longest holds 2000009 tokens, and the cache 1000000: give --kv-tokens",
            id="a prompt that no cache of this size holds",
        ),
    ],
)
def test_what_cannot_be_fitted_is_told_in_one_line(
    rows: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.csv").write_text(RUN + rows)
    assert main(["calibrate", str(tmp_path / "run.csv")]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
