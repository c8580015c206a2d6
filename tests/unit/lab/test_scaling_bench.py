"""Is what the benchmark says of its rows right: curves, the choice of a setting, and each answer?"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_lab.scaling_bench.__main__ import main, settings
from tidegate_lab.scaling_bench.answers import ORACLE, UNAVOIDABLE, answers
from tidegate_lab.scaling_bench.cases import CASES, Split
from tidegate_lab.scaling_bench.contestants import CONTESTANTS, OURS
from tidegate_lab.scaling_bench.curves import Curve, Point, dominates
from tidegate_lab.scaling_bench.keeping import BASE, code_of, imported, kept
from tidegate_lab.scaling_bench.rows import Row, best_setting, with_best_of_tuning

CURVE = Curve.of([Point(10, 0.5), Point(20, 0.9), Point(15, 0.4), Point(30, 1.0)])


def row(policy: str, attainment: float, hours: float, **fields: object) -> Row:
    base: dict[str, object] = {
        "policy": policy,
        "trace": "azure-code",
        "cold_start_s": 90.0,
        "split": Split.SCORE,
        "attainment": attainment,
        "replica_hours": hours,
        "oracle_replica_hours": 10.0,
        "ttft_p99": 1.0,
        "tpot_p99": 0.05,
        "reversals_per_hour": 0.0,
        "setting": 1.0,
        "is_default": True,
        "is_best_of_tuning": True,
        "requests": 1000,
        "violations": round(1000 * (1 - attainment)),
        "oracle_attainment": 0.99,
        "most_replicas": 5,
        "changes": ((0.0, 5),),
    }
    return Row(**(base | fields))  # type: ignore[arg-type]


def holds(rows: list[Row], claim: str) -> bool | None:
    found = [answer for answer in answers(rows) if claim in answer.claim]
    assert len(found) == 1
    return found[0].holds


@pytest.mark.parametrize(
    ("hours", "attainment"),
    [
        pytest.param(9, None, id="cheaper than anything we have"),
        pytest.param(10, 0.5, id="the cheapest"),
        pytest.param(15, 0.7, id="half way, and not the point that is worse than that"),
        pytest.param(30, 1.0, id="the dearest"),
        pytest.param(99, 1.0, id="more buys no more"),
    ],
)
def test_what_hours_buy(hours: float, attainment: float | None) -> None:
    assert CURVE.attainment_at(hours) == pytest.approx(attainment) if attainment else CURVE.attainment_at(hours) is None


@pytest.mark.parametrize(
    ("attainment", "hours"),
    [
        pytest.param(0.2, 10, id="less than we ever attain costs no less than our cheapest"),
        pytest.param(0.7, 15, id="between two settings"),
        pytest.param(0.95, 25, id="near the top"),
        pytest.param(1.0, 30, id="the best"),
    ],
)
def test_what_attainment_costs(attainment: float, hours: float) -> None:
    assert CURVE.hours_at(attainment) == pytest.approx(hours)
    assert Curve.of([Point(1, 0.9)]).hours_at(0.91) is None


@pytest.mark.parametrize(
    ("point", "beaten"),
    [
        pytest.param(Point(15, 0.69), False, id="below the line"),
        pytest.param(Point(15, 0.71), True, id="above the line between two points"),
        pytest.param(Point(9, 0.45), False, id="cheaper, and worse than all of ours"),
        pytest.param(Point(9, 0.55), True, id="cheaper than our cheapest and better"),
        pytest.param(Point(20, 0.9), False, id="the same"),
        pytest.param(Point(31, 1.0), False, id="dearer, and no better"),
    ],
)
def test_who_beats_a_curve(point: Point, beaten: bool) -> None:
    assert CURVE.beaten_by(point) is beaten


@given(st.lists(st.builds(Point, st.floats(1, 100), st.floats(0, 1)), min_size=1, max_size=12))
def test_a_curve_beats_nothing_of_its_own_and_ascends(points: list[Point]) -> None:
    curve = Curve.of(points)
    assert not any(dominates(p, q) for p, q in product(points, curve.points))
    assert not any(curve.beaten_by(p) for p in curve.points)
    for point in curve.points:
        assert curve.attainment_at(point.hours) == pytest.approx(point.attainment)
        assert curve.hours_at(point.attainment) == pytest.approx(point.hours)


def test_tuning_takes_the_cheapest_that_attains_enough_and_else_the_best() -> None:
    tuned = [
        row("a", attained, hours, setting=setting, split=Split.TUNE)
        for setting, attained, hours in ((1.0, 0.999, 30), (2.0, 0.992, 20), (3.0, 0.98, 10))
    ]
    assert best_setting(tuned) == 2.0
    assert best_setting(tuned[2:]) == 3.0
    assert best_setting([row("a", 1.0, 1.0)]) is None  # scoring traces choose nothing
    marked = with_best_of_tuning([*tuned, row("b", 1.0, 1.0)])
    assert [(r.policy, r.setting) for r in marked if r.is_best_of_tuning] == [("a", 2.0)]


def test_domination_is_found_and_a_tie_is_none() -> None:
    ours, claim = row(OURS, 0.95, 12.0), "no setting of a rival is both better and cheaper"
    assert holds([ours, row("static", 0.95, 11.0), row("static", 0.99, 12.0)], claim) is True
    assert holds([ours, row("static", 0.96, 11.9)], claim) is False
    assert holds([row("static", 0.96, 11.9)], claim) is None


def test_sums_are_taken_at_the_rivals_own_attainment_and_hours() -> None:
    ours = [row(OURS, 0.90, 10.0, setting=1.0), row(OURS, 0.99, 20.0, setting=2.0, is_default=False)]
    rival = row("keda-queue", 0.90, 20.0)
    assert holds([*ours, rival], "at least 20 % fewer") is True
    assert holds([*ours, rival], "at most half of its violations") is True
    dear = row("keda-queue", 0.99, 24.0)
    assert holds([*ours, dear], "at least 20 % fewer") is False  # 17 %
    assert holds([*ours, dear], "at most half of its violations") is False
    assert holds([*ours, row("keda-queue", 0.999, 90.0)], "at least 20 % fewer") is False  # we never attain that


def test_the_step_the_day_and_the_turns() -> None:
    step = {"trace": "step-up-10x", "split": Split.TUNE}
    least = row(UNAVOIDABLE, 0.94, 9.0, **step)
    assert holds([row(OURS, 0.93, 9.0, **step), least], "step-up-10x at 90 s: within 2 points") is True
    assert holds([row(OURS, 0.91, 9.0, **step), least], "step-up-10x at 90 s: within 2 points") is False
    day = {"trace": "servegen-24h"}
    assert holds([row(OURS, 0.98, 14.0, **day)], "The day-long trace") is True
    assert holds([row(OURS, 0.98, 14.1, **day)], "The day-long trace") is False
    assert holds([row(OURS, 0.97, 11.0, **day)], "The day-long trace") is False
    turning = row(OURS, 0.9, 9.0, reversals_per_hour=2.0)
    assert holds([turning, row(ORACLE, 0.99, 9.0, reversals_per_hour=2.0)], "No change of direction") is True
    assert holds([turning, row(ORACLE, 0.99, 9.0, reversals_per_hour=1.9)], "No change of direction") is False
    over = row(OURS, 0.9, 9.0, **step, most_replicas=12)
    assert holds([over, row(ORACLE, 0.99, 9.0, **step, most_replicas=10)], "Steps up") is True
    assert holds([over, row(ORACLE, 0.99, 9.0, **step, most_replicas=9)], "Steps up") is False


def test_constant_load_and_the_published_scenario() -> None:
    still = {"trace": "constant", "split": Split.CHECK}
    assert holds([row(OURS, 1, 1, changes=((0.0, 1), (5.0, 9), (95.0, 8)), **still)], "Constant load") is True
    assert holds([row(OURS, 1, 1, changes=((0.0, 1), (200.0, 8), (300.0, 9), (400.0, 8)), **still)], "Const") is False
    llmd = {"trace": "llmd-stages", "split": Split.CHECK, "cold_start_s": 100.0}
    hours = 2430 / 3600
    assert holds([row(OURS, 0.96, 5.9 * hours, **llmd)], "llm-d's published") is True
    assert holds([row(OURS, 0.95, 5.0 * hours, **llmd)], "llm-d's published") is False
    assert holds([row(OURS, 0.99, 6.0 * hours, **llmd)], "llm-d's published") is False


def test_both_halves_have_recorded_and_made_traces() -> None:
    recorded = {"azure-conv", "azure-code", "servegen-24h", "aibrix-up-down"}
    for split in (Split.TUNE, Split.SCORE):
        names = {c.name for c in CASES if c.split is split}
        assert len(names & recorded) == 2 and len(names - recorded) == 2


def test_every_contestant_shows_its_published_default_on_its_curve() -> None:
    for contestant in CONTESTANTS.values():
        assert contestant.default in contestant.values
        assert len(set(contestant.values)) == len(contestant.values)


def test_a_run_is_kept_by_what_it_depends_on(tmp_path: Path) -> None:
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [kept(tmp_path, "static", key, make) for key in ("a", "a", "b", "a")] == [1, 1, 2, 1]
    assert kept(tmp_path, "keda-queue", "a", make) == 3


def test_a_kept_run_depends_on_its_own_law_and_only_ours_on_the_operators_deciding() -> None:
    def names(policy: str) -> set[str]:
        return {path.name for path in imported([BASE, CONTESTANTS[policy].module])}

    assert {"run.py", "leap_steps.py", "synthetic.py", "observed_load.py", "needed.py"} <= names("kubeai")
    assert "kubeai.py" in names("kubeai") and "kubeai.py" not in names("knative-kpa")
    assert "scaling.py" in names(OURS)
    assert not {"decide"} & {path.parent.name for path in imported([BASE, CONTESTANTS["kubeai"].module])}
    assert len({code_of(policy) for policy in (OURS, "kubeai", "knative-kpa", ORACLE)}) == 4
    assert code_of("static") == code_of(ORACLE)  # both follow a plan, which all runs are measured by


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--only", "tuesday"], "neither a trace nor a policy", id="a name that is none"),
        pytest.param(["--cold-start", "soon"], "give seconds", id="a cold start that is no number"),
    ],
)
def test_mistakes_are_told_in_a_line(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings(flags)
    assert words in capsys.readouterr().err


def test_a_small_run_from_end_to_end_and_again_from_what_was_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "scaling.json"
    flags = ["--only", "aibrix-up-down,static,keda-queue", "--cold-start", "30", "--workers", "1"]
    flags += ["--kept", str(tmp_path / "runs"), "--out", str(out)]
    assert main(flags) == 0
    first = json.loads(out.read_text())
    rows = {(r["policy"], r["setting"]): r for r in first["rows"]}
    assert len(rows) == 2 + len(CONTESTANTS["static"].values) + len(CONTESTANTS["keda-queue"].values)
    oracle = rows["oracle", None]
    assert oracle["attainment"] >= 0.99
    assert rows["unavoidable", None]["attainment"] < oracle["attainment"]
    peak = rows["static", 1.0]
    assert peak["attainment"] > rows["static", 0.4]["attainment"]
    assert peak["replica_hours"] > oracle["replica_hours"] == peak["oracle_replica_hours"]
    assert "keda-queue" in capsys.readouterr().out

    def forbidden(*_: object) -> None:
        raise AssertionError("everything was kept")

    monkeypatch.setattr("tidegate_lab.scaling_bench.run.simulate", forbidden)
    monkeypatch.setattr("tidegate_lab.scaling_bench.ground.simulate", forbidden)
    assert main(flags) == 0
    assert json.loads(out.read_text()) == first
