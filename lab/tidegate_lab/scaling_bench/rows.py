"""The rows that everything else is worked out from: one policy with one setting on one trace and cold start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidegate_lab.scaling_bench.cases import Split
from tidegate_lab.scaling_bench.measured import Measured

GOOD_ENOUGH = 0.99
"""What a setting must attain on the tuning half to be chosen for its cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Names of the first ten fields are those that readers of the JSON file were promised."""

    policy: str
    trace: str
    cold_start_s: float
    split: Split
    attainment: float
    replica_hours: float
    oracle_replica_hours: float
    ttft_p99: float | None
    tpot_p99: float | None
    reversals_per_hour: float
    setting: float | None
    is_default: bool
    is_best_of_tuning: bool
    requests: int
    violations: int
    oracle_attainment: float
    most_replicas: int
    changes: tuple[tuple[float, int], ...]

    @property
    def scenario(self) -> tuple[str, float]:
        return self.trace, self.cold_start_s

    @property
    def relative_hours(self) -> float:
        """Replica-hours over the oracle's."""
        return self.replica_hours / self.oracle_replica_hours if self.oracle_replica_hours else 0.0


def row(
    policy: str,
    setting: float | None,
    default: bool,
    scenario: tuple[str, float, Split],
    measured: Measured,
    oracle: Measured,
) -> Row:
    """One run as a row; which setting is the best of tuning is only known with all rows."""
    trace, cold_start_s, split = scenario
    return Row(
        policy=policy,
        trace=trace,
        cold_start_s=cold_start_s,
        split=split,
        attainment=measured.attainment,
        replica_hours=measured.replica_hours,
        oracle_replica_hours=oracle.replica_hours,
        ttft_p99=measured.ttft_p99,
        tpot_p99=measured.tpot_p99,
        reversals_per_hour=measured.reversals_per_hour,
        setting=setting,
        is_default=default,
        is_best_of_tuning=False,
        requests=measured.requests,
        violations=measured.requests - measured.attained,
        oracle_attainment=oracle.attainment,
        most_replicas=measured.most,
        changes=measured.changes,
    )


def best_setting(rows: Iterable[Row]) -> float | None:
    """Of one policy's rows, the setting that does best on the tuning half, each trace and cold start weighing alike.

    The cheapest (replica-hours over the oracle's) of those that attain enough on average; where none does, the one that
    attains most. None where nothing was tuned.
    """
    by_setting: dict[float, list[Row]] = {}
    for each in rows:
        if each.split is Split.TUNE and each.setting is not None:
            by_setting.setdefault(each.setting, []).append(each)
    if not by_setting:
        return None
    figures = {
        setting: (sum(r.attainment for r in some) / len(some), sum(r.relative_hours for r in some) / len(some))
        for setting, some in by_setting.items()
    }
    enough = {setting: hours for setting, (attained, hours) in figures.items() if attained >= GOOD_ENOUGH}
    if enough:
        return min(enough, key=lambda setting: enough[setting])
    return max(figures, key=lambda setting: figures[setting][0])


def with_best_of_tuning(rows: Sequence[Row]) -> list[Row]:
    """Marks, of each policy, the rows with the setting that the tuning half chose."""
    marked: list[Row] = []
    for _, group in groupby(sorted(rows, key=lambda r: r.policy), key=lambda r: r.policy):
        some = list(group)
        best = best_setting(some)
        marked += [replace(r, is_best_of_tuning=best is not None and r.setting == best) for r in some]
    return marked
