"""The table for people: policy by trace, attainment and replica-hours over the oracle's."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tidegate_lab.scaling_bench.answers import ORACLE, UNAVOIDABLE
from tidegate_lab.scaling_bench.cases import CASES, Split
from tidegate_lab.scaling_bench.contestants import OURS
from tidegate_lab.scaling_bench.rows import Row


def tables(rows: Sequence[Row]) -> list[Table]:
    """One for each cold start of tuning and scoring traces; each policy as published and, below it, as tuned."""
    contested = [r for r in rows if r.split is not Split.CHECK]
    return [
        _table(f"cold start {cold:g} s", [r for r in contested if r.cold_start_s == cold])
        for cold in sorted({r.cold_start_s for r in contested})
    ]


def _table(title: str, rows: Sequence[Row]) -> Table:
    traces = [case for case in CASES if case.name in {r.trace for r in rows}]
    table = Table(title=f"{title}: attained, and replica-hours over the oracle's")
    table.add_column("policy")
    table.add_column("setting")
    for trace in traces:
        table.add_column(f"{trace.name}\n({trace.split})", justify="right")
    for policy, setting, remark in _lines(rows):
        cells = []
        for trace in traces:
            found = next(
                (r for r in rows if r.policy == policy and r.setting == setting and r.trace == trace.name), None
            )
            cells.append(f"{found.attainment:.1%} {found.relative_hours:.2f}x" if found else "")
        table.add_row(policy, remark, *cells)
    return table


def _lines(rows: Sequence[Row]) -> list[tuple[str, float | None, str]]:
    present = {r.policy for r in rows}
    order = [p for p in (ORACLE, UNAVOIDABLE, OURS) if p in present]
    order += sorted(present - set(order))
    lines: list[tuple[str, float | None, str]] = []
    for policy in order:
        own = [r for r in rows if r.policy == policy]
        default = next((r.setting for r in own if r.is_default), None)
        tuned = next((r.setting for r in own if r.is_best_of_tuning), None)
        if policy in (ORACLE, UNAVOIDABLE):
            lines.append((policy, None, ""))
            continue
        if default is not None:
            lines.append(
                (policy, default, f"{default:g} as published" if policy != OURS else f"{default:g} as shipped")
            )
        if tuned is not None and tuned != default:
            lines.append((policy, tuned, f"{tuned:g} as tuned"))
    return lines
