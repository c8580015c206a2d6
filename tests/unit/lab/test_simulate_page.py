"""The page of a simulation: what it is made of is where it should be, and whatever a name says it is no markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scripted_policy import Scripted, drawn_trace, fixed
from tidegate_lab.cli import main
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Fault, FaultKind, Scenario, Targets
from tidegate_lab.traffic.trace import Trace
from tidegate_lab.what_if.page import page
from tidegate_lab.what_if.plot import HEIGHT, LEFT, WIDTH, Line, Plot, ceiling
from tidegate_lab.what_if.series import Series


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    scenario = Scenario(
        trace=replace(drawn_trace(2, 2000, 300.0, 60, 60), name="<b>mine</b>"),
        engine=EngineModel(name="small", step=StepModel(0.01, 0.0002, 0.0), slots=8, kv_tokens=2000),
        cold_start=ColdStart(median_s=20.0),
        targets=Targets(ttft_s=0.5, tpot_s=0.1),
        faults=(Fault(kind=FaultKind.HTTP_500, at=100.0, seconds=50.0, share=0.5),),
    )
    policy = Scripted(plan=((0.0, 1), (60.0, 3), (200.0, 2)))
    looked = simulate(scenario, policy)
    moments = tuple(
        replace(m, choice=Choice(replicas=m.choice.replicas, reason="Because", message="1 < 2 & more"))
        for m in looked.moments
    )
    return replace(looked, moments=moments)


def test_columns_over_time_add_up_to_the_outcome(outcome: Outcome) -> None:
    series = Series.of(outcome)
    assert len(series.ready) == 30
    assert series.arrivals_per_s.sum() * series.width == pytest.approx(2000)
    came = series.arrivals_per_s * series.width
    assert np.nansum(series.missed * came) == pytest.approx(2000 * (1 - outcome.attainment))
    assert np.nanmax(series.ready) == 3
    # A piece of 10 s holds the looks at its beginning and in its middle.
    assert series.wanted[[5, 6, 19, 20]].tolist() == [1, 3, 3, 2]
    assert np.nanmax(series.ttft_p99) <= np.nanmax(outcome.ttft)


def test_the_page_is_whole_and_tells_each_change_and_the_figures(outcome: Outcome) -> None:
    text = page(outcome, ["attainment 12 % <of all>"])
    assert "attainment 12 % &lt;of all&gt;" in text
    assert "<b>mine</b>" not in text
    assert "1 < 2" not in text
    assert not re.search(r"https?://|<script|@import|url\(", text)
    body = ElementTree.fromstring(text[text.index("<body>") : text.index("</html>")])
    plots = body.findall("svg")
    assert len(plots) == 6
    assert len(body.findall("table/tr")) == 1 + 2
    replicas = plots[1]
    marks = [title.text for title in replicas.findall("circle/title")]
    assert marks == ["0:01:00: 1 to 3. Because: 1 < 2 & more", "0:03:20: 3 to 2. Because: 1 < 2 & more"]
    assert [title.text for title in replicas.findall("rect[@class='fault']/title")] == [
        "http-500 from 0:01:40, 50% of pods"
    ]
    pieces = [title.text or "" for title in replicas.findall("rect[@class='piece']/title")]
    assert len(pieces) == 30
    assert "3 replicas wanted, 3 ready" in pieces[12]
    assert pieces[12].endswith("Because: 1 < 2 & more")


def test_what_is_drawn_lies_in_the_picture_and_gaps_are_gaps() -> None:
    values = np.array([0.0, 5.0, np.nan, 3.0])
    svg = Plot(title="a & b", lines=[Line("x", "#123456", values)], seconds=100.0, limit=7.0).svg()
    path = ElementTree.fromstring(svg).find("path")
    assert path is not None
    drawn = path.get("d") or ""
    assert drawn.count("M") == 2
    assert drawn.count("H") == 3
    numbers = [float(number) for number in re.findall(r"[\d.]+", drawn)]
    assert min(numbers) >= 0
    assert max(numbers) == WIDTH
    places = re.findall(r"[ML]([\d.]+) ([\d.]+)", drawn)
    assert all(LEFT <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT for x, y in places)
    assert float(places[1][1]) < float(places[2][1]) < float(places[0][1])


@pytest.mark.parametrize(
    ("value", "end"),
    [(0.0, 1.0), (float("nan"), 1.0), (0.03, 0.04), (1.0, 1.0), (5.0, 6.0), (1234.0, 2000.0)],
)
def test_an_axis_ends_at_a_round_number(value: float, end: float) -> None:
    assert ceiling(value) == pytest.approx(end)


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = Path(__file__).resolve().parents[3] / "crds/examples"
    written = tmp_path / "page.html"
    argv = ["simulate", "--service", str(examples / "minimal.yaml"), "--trace", "aibrix-up-down", "--seconds", "90"]
    assert main([*argv, "--html", str(written)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"attainment +[\d.]+%", told).group() in written.read_text()  # type: ignore[union-attr]


@pytest.mark.parametrize("requests", [1, 3])
def test_a_trace_of_one_moment_has_a_page_too(requests: int) -> None:
    lengths = np.full(requests, 20, np.int32)
    trace = Trace("moment", np.zeros(requests), lengths, lengths, 0.0)
    engine = EngineModel(name="small", step=StepModel(0.01, 0.0002, 0.0))
    outcome = simulate(Scenario(trace=trace, engine=engine, cold_start=ColdStart(median_s=0.0)), fixed(1))
    series = Series.of(outcome)
    assert series.arrivals_per_s.tolist() == [requests]
    assert "nan" not in page(outcome, [])
