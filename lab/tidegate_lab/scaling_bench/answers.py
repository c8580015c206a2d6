"""What must be shown, line by line, as sentences worked out from the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate_lab.scaling_bench.cases import Split
from tidegate_lab.scaling_bench.contestants import OURS
from tidegate_lab.scaling_bench.curves import Curve, Point, dominates
from tidegate_lab.scaling_bench.rows import Row
from tidegate_lab.traffic.named import LLMD_STAGES

ORACLE, UNAVOIDABLE = "oracle", "unavoidable"
LLMD_ATTAINMENT, LLMD_REPLICAS = 0.958, 5.93
STEPS = ("step-up-10x", "step-down-10x")


@dataclass(frozen=True, slots=True)
class Answer:
    """One claim; `holds` None: there are no rows to tell by, or it is a question and no claim."""

    claim: str
    holds: bool | None
    figures: str

    @property
    def sentence(self) -> str:
        verdict = {True: "yes", False: "NO", None: "told" if self.figures else "not run"}[self.holds]
        return f"[{verdict}] {self.claim} {self.figures}"


def point(row: Row) -> Point:
    return Point(row.replica_hours, row.attainment)


class Table:
    """Rows by who and where."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.scenarios = sorted({r.scenario for r in self.rows if r.split is not Split.CHECK})
        self.rivals = sorted({r.policy for r in self.rows} - {OURS, ORACLE, UNAVOIDABLE})

    def of(self, policy: str, scenario: tuple[str, float] | None = None, trace: str | None = None) -> list[Row]:
        return [
            r
            for r in self.rows
            if r.policy == policy
            and (scenario is None or r.scenario == scenario)
            and (trace is None or r.trace == trace)
        ]

    def default(self, policy: str, scenario: tuple[str, float]) -> Row | None:
        return next((r for r in self.of(policy, scenario) if r.is_default), None)

    def summed(self, policy: str, split: Split = Split.SCORE) -> dict[float, Point]:
        """By setting: replica-hours and attainment over all scenarios of a split, requests and hours summed.

        Only settings that ran on every scenario of the split count.
        """
        expected = {r.scenario for r in self.rows if r.split is split}
        by_setting: dict[float, list[Row]] = {}
        for r in self.of(policy):
            if r.split is split and r.setting is not None:
                by_setting.setdefault(r.setting, []).append(r)
        return {
            setting: Point(
                sum(r.replica_hours for r in some), 1 - sum(r.violations for r in some) / sum(r.requests for r in some)
            )
            for setting, some in by_setting.items()
            if {r.scenario for r in some} == expected
        }


def answers(rows: Sequence[Row]) -> list[Answer]:
    """In the order of the claims."""
    table = Table(rows)
    return [
        _default_undominated(table),
        _curve_undominated(table),
        *_summed(table),
        _day(table),
        *_steps(table),
        _cold_starts(table),
        _llmd(table),
        _reversals(table),
        _constant(table),
        *_overshoot(table),
    ]


def _default_undominated(table: Table) -> Answer:
    claim = "On every trace and cold start no setting of a rival is both better and cheaper than ours as shipped."
    lost, seen = [], 0
    for scenario in table.scenarios:
        ours = table.default(OURS, scenario)
        if ours is None:
            continue
        seen += 1
        for rival in table.rivals:
            lost += [
                f"{rival}={r.setting:g} on {r.trace} at {r.cold_start_s:g} s ({_pair(r)} against {_pair(ours)})"
                for r in table.of(rival, scenario)
                if dominates(point(r), point(ours))
            ]
    if not seen:
        return Answer(claim, None, "")
    told = f"{seen} scenarios; none." if not lost else f"{len(lost)} are: {_some(lost)}"
    return Answer(claim, not lost, told)


def _curve_undominated(table: Table) -> Answer:
    claim = "Nor does any rival's point lie above our curve."
    lost, seen = [], 0
    for scenario in table.scenarios:
        ours = table.of(OURS, scenario)
        if not ours:
            continue
        seen += 1
        curve = Curve.of(point(r) for r in ours)
        for rival in table.rivals:
            lost += [
                f"{rival}={r.setting:g} on {r.trace} at {r.cold_start_s:g} s ({_pair(r)})"
                for r in table.of(rival, scenario)
                if curve.beaten_by(point(r))
            ]
    if not seen:
        return Answer(claim, None, "")
    return Answer(claim, not lost, f"{seen} scenarios; none." if not lost else f"{len(lost)} do: {_some(lost)}")


def _summed(table: Table) -> list[Answer]:
    fewer = "Summed over the scoring traces, at each rival's attainment we need at least 20 % fewer replica-hours."
    halved = "Summed over the scoring traces, at each rival's replica-hours we have at most half of its violations."
    ours = table.summed(OURS)
    points = {rival: p for rival in table.rivals if (p := _tuned(table, rival)) is not None}
    if not ours or not points:
        return [Answer(fewer, None, ""), Answer(halved, None, "")]
    curve = Curve.of(ours.values())
    saved, ratios = {}, {}
    for rival, there in points.items():
        hours, best = curve.hours_at(there.attainment), curve.attainment_at(there.hours)
        saved[rival] = None if hours is None else 1 - hours / there.hours
        missed = 1 - there.attainment
        ratios[rival] = None if best is None else (1 - best) / missed if missed > 0 else 1.0 if best == 1 else None
    enough = all(value is not None and value >= 0.20 for value in saved.values())
    few = all(value is not None and value <= 0.50 for value in ratios.values())
    ranked = sorted(points, key=lambda rival: (-points[rival].attainment, points[rival].hours))
    at = {r: f"{r} ({points[r].attainment:.2%} at {points[r].hours:.0f} h)" for r in ranked}
    return [
        Answer(
            fewer,
            enough,
            "Best rival first: "
            + "; ".join(f"{at[r]}: {_share(saved[r], 'it attains more than we ever do')}" for r in at),
        ),
        Answer(
            halved,
            few,
            "Best rival first: "
            + "; ".join(f"{at[r]}: {_share(ratios[r], 'we have no setting as cheap')}" for r in at),
        ),
    ]


def _tuned(table: Table, rival: str) -> Point | None:
    """A rival at the setting that the tuning half chose."""
    setting = next((r.setting for r in table.of(rival) if r.is_best_of_tuning and r.setting is not None), None)
    return None if setting is None else table.summed(rival).get(setting)


def _day(table: Table) -> Answer:
    claim = "The day-long trace with cold starts of 90 s: at least 98 % at no more than 1.4 times the oracle's hours."
    ours = table.default(OURS, ("servegen-24h", 90.0))
    if ours is None:
        return Answer(claim, None, "")
    best = Curve.of(point(r) for r in table.of(OURS, ours.scenario)).attainment_at(1.4 * ours.oracle_replica_hours)
    holds = ours.attainment >= 0.98 and ours.relative_hours <= 1.4
    at = "below our cheapest setting" if best is None else f"{best:.2%} by our curve"
    return Answer(claim, holds, f"{_pair(ours)}; at 1.4 times {at}.")


def _steps(table: Table) -> list[Answer]:
    told = []
    for scenario in table.scenarios:
        if scenario[0] not in STEPS:
            continue
        ours = table.default(OURS, scenario)
        claim = f"{scenario[0]} at {scenario[1]:g} s: within 2 points of what nobody can serve."
        least = next(iter(table.of(UNAVOIDABLE, scenario)), None)
        if ours is None or least is None:
            told.append(Answer(claim, None, ""))
            continue
        missed, nobody = 1 - ours.attainment, 1 - least.attainment
        told.append(Answer(claim, missed - nobody <= 0.02, f"{missed:.2%} missed, {nobody:.2%} unavoidable."))
    return told


def _cold_starts(table: Table) -> Answer:
    claim = "What cold starts cost: our attainment and hours over the oracle's, on average over all traces."
    parts = []
    for cold in sorted({s[1] for s in table.scenarios}):
        ours = [r for s in table.scenarios if s[1] == cold and (r := table.default(OURS, s)) is not None]
        if ours:
            attained = sum(r.attainment for r in ours) / len(ours)
            parts.append(f"{cold:g} s: {attained:.2%} at {sum(r.relative_hours for r in ours) / len(ours):.2f}x")
    return Answer(claim, None, "; ".join(parts))


def _llmd(table: Table) -> Answer:
    claim = "llm-d's published scenario: better than their 95.8 % at 5.93 replicas on both."
    ours = next((r for r in table.of(OURS, trace="llmd-stages") if r.is_default), None)
    if ours is None:
        return Answer(claim, None, "")
    seconds = sum(stage.seconds for stage in LLMD_STAGES)
    mean = ours.replica_hours * 3600 / seconds
    theirs = next((r for r in table.of("llmd-slo", trace="llmd-stages") if r.is_default), None)
    here = f"; their law here {theirs.attainment:.1%} at {theirs.replica_hours * 3600 / seconds:.2f}" if theirs else ""
    holds = ours.attainment > LLMD_ATTAINMENT and mean < LLMD_REPLICAS
    return Answer(claim, holds, f"{ours.attainment:.1%} at {mean:.2f} replicas{here}.")


def _reversals(table: Table) -> Answer:
    claim = "No change of direction more often than the load's own (the oracle's)."
    worse = []
    ours = [r for r in table.of(OURS) if r.is_default]
    for r in ours:
        own = next(iter(table.of(ORACLE, r.scenario)), None)
        if own is not None and r.reversals_per_hour > own.reversals_per_hour:
            worse.append(
                f"{r.trace} at {r.cold_start_s:g} s ({r.reversals_per_hour:.1f} against {own.reversals_per_hour:.1f})"
            )
    return Answer(claim, None if not ours else not worse, f"more often: {_some(worse)}" if worse else "")


def _constant(table: Table) -> Answer:
    claim = "Constant load: no change of direction after the first cold start."
    ours = next((r for r in table.of(OURS, trace="constant") if r.is_default), None)
    if ours is None:
        return Answer(claim, None, "")
    late = [(at, n) for at, n in ours.changes if at > 2 * ours.cold_start_s]
    turned = sum((a[1] > b[1]) != (b[1] > c[1]) for a, b, c in zip(late, late[1:], late[2:], strict=False))
    return Answer(claim, turned == 0, f"{len(late)} changes after two cold starts, {turned} turns; {_pair(ours)}.")


def _overshoot(table: Table) -> list[Answer]:
    """Over where the number settles, and over the most of the oracle, which has no queue to clear."""
    over, beyond = {}, {}
    for r in table.of(OURS):
        own = next(iter(table.of(ORACLE, r.scenario)), None)
        where = f"{r.trace} at {r.cold_start_s:g} s"
        if r.is_default and r.trace == "step-up-10x":
            over[where] = r.most_replicas / r.changes[-1][1] - 1
        if r.is_default and r.trace in ("step-up-10x", "on-off") and own is not None:
            beyond[where] = r.most_replicas / own.most_replicas - 1
    return [
        _at_most_a_fifth("A step up: at no time more than 20 % over what it settles at.", over),
        _at_most_a_fifth("Steps up: at no time more than 20 % over the oracle's most.", beyond),
    ]


def _at_most_a_fifth(claim: str, over: dict[str, float]) -> Answer:
    holds = None if not over else all(value <= 0.20 for value in over.values())
    return Answer(claim, holds, "; ".join(f"{where}: {value:+.0%}" for where, value in over.items()))


def _pair(row: Row) -> str:
    return f"{row.attainment:.2%} at {row.relative_hours:.2f}x"


def _share(value: float | None, none: str) -> str:
    return none if value is None else f"{value:.0%}"


def _some(names: Sequence[str], most: int = 6) -> str:
    return "; ".join(names[:most]) + (f"; and {len(names) - most} more." if len(names) > most else ".")
