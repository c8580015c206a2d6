"""One scenario of the benchmark, and the two runs that the others are measured by: the oracle's and the unavoidable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate_lab.scaling_bench.cases import Case, case, traffic
from tidegate_lab.scaling_bench.measured import Measured
from tidegate_lab.simulate.policies.needed import (
    FullReplica,
    averaged,
    planned,
    work_of_arrivals,
    work_over_time,
)
from tidegate_lab.simulate.policies.plans import Plan, Planned
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Scenario

ENOUGH = 0.99
"""The attainment that the oracle must reach, where any number of replicas can."""
WINDOWS_S = (30.0, 10.0, 90.0)
STEP = 0.02
NEARBY = 0.16
LOWEST, HIGHEST = 0.3, 1.3
"""Utilisations that are searched."""
NO_BOUND = 1000
RATE_S = 30.0
LATE_SHARE = 0.7
"""Of the oracle's utilisation: who comes late has a backlog to clear. (A step of 10x, 90 s: at 1.0 of it a quarter of
the requests attain, at 0.85 93.5 %, at 0.7 94.5 %, at 0.5 95.2 %.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What is known of a scenario before anybody else runs in it."""

    case: str
    cold_start_s: float
    utilisation: float
    window_s: float
    plan: Plan
    oracle_peak: int
    oracle: Measured
    unavoidable: Measured


def scenario_of(of: Case, cold_start_s: float, *, first: int, maximum: int) -> Scenario:
    """The case as the simulator takes it; every contestant gets the same pods with the same cold starts."""
    return Scenario(
        trace=traffic(of.name),
        engine=of.engine,
        cold_start=ColdStart(median_s=cold_start_s),
        targets=of.targets,
        first_replicas=first,
        minimum=of.minimum,
        maximum=maximum,
        seed=1,
    )


def contested(ground: Ground) -> Scenario:
    """Where contestants run: beginning with what the oracle begins with, bounded by twice its peak."""
    of = case(ground.case)
    first = of.first if of.first is not None else ground.plan.when(0.0)
    maximum = of.maximum if of.maximum is not None else 2 * ground.oracle_peak
    return scenario_of(of, ground.cold_start_s, first=first, maximum=maximum)


@dataclass(frozen=True, slots=True, order=True)
class _Found:
    """What a window led to; the fewer hours the better, infinite where it did not attain enough."""

    hours: float
    utilisation: float = field(compare=False)
    window_s: float = field(compare=False)
    measured: Measured = field(compare=False)


class Search:
    """For the oracle of one case and cold start: the window and utilisation that attain enough for the least."""

    def __init__(self, of: Case, cold_start_s: float) -> None:
        self.of, self.cold_start_s = of, cold_start_s
        self.trace = traffic(of.name)
        self.full = FullReplica.of(of.engine, self.trace, of.targets.tpot_s)
        self.work = work_over_time(self.trace, self.full)
        start = ColdStart(median_s=self.cold_start_s)
        self.lead_s = start.median_s * float(np.exp(2 * start.sigma))
        self.gap_s = start.median_s + float(self.full.answer_s(self.trace.output.astype(float)).mean())

    def plan(self, utilisation: float, window_s: float) -> Plan:
        return planned(averaged(self.work, window_s), utilisation, lead_s=self.lead_s, gap_s=self.gap_s)

    def run(self, plan: Plan, name: str = "oracle") -> Measured:
        maximum = self.of.maximum or NO_BOUND
        scenario = scenario_of(self.of, self.cold_start_s, first=min(plan.when(0.0), maximum), maximum=maximum)
        return Measured.of(simulate(scenario, Planned(Told.of(scenario), name, plan)))

    def found(self, near: Ground | None = None) -> Ground:
        """By bisection over utilisation in each window; `near` is what another cold start found, which is close."""
        if near is None:
            enough = min(ENOUGH, self.run(self.plan(LOWEST, WINDOWS_S[0])).attainment)
            best = self._bisected(WINDOWS_S[0], LOWEST, HIGHEST, enough)
            for window in WINDOWS_S[1:]:
                middle = best.utilisation
                best = min(best, self._bisected(window, middle - NEARBY, middle + NEARBY, enough))
        else:
            enough = min(ENOUGH, near.oracle.attainment)
            best = self._bisected(near.window_s, near.utilisation - 3 * STEP, near.utilisation + 3 * STEP, enough)
        plan = self.plan(best.utilisation, best.window_s)
        return Ground(
            case=self.of.name,
            cold_start_s=self.cold_start_s,
            utilisation=best.utilisation,
            window_s=best.window_s,
            plan=plan,
            oracle_peak=plan.peak,
            oracle=best.measured,
            unavoidable=self.run(self.late(best.utilisation, best.window_s), "unavoidable"),
        )

    def _bisected(self, window_s: float, low: float, high: float, enough: float) -> _Found:
        """The highest utilisation that attains enough; where even the lowest does not, the lowest."""
        best: _Found | None = None
        while high - low > STEP:
            middle = (low + high) / 2
            measured = self.run(self.plan(middle, window_s))
            if measured.attainment >= enough:
                low, best = middle, _Found(measured.replica_hours, middle, window_s, measured)
            else:
                high = middle
        if best is None:
            measured = self.run(self.plan(low, window_s))
            hours = measured.replica_hours if measured.attainment >= enough else math.inf
            best = _Found(hours, low, window_s, measured)
        return best

    def late(self, utilisation: float, window_s: float) -> Plan:
        """Knows the true rate at the moment it changes, and not before: what it misses on a step nobody can serve."""
        due = averaged(work_of_arrivals(self.trace, self.full), max(window_s, RATE_S), self.of.borders)
        return planned(due, LATE_SHARE * utilisation, lead_s=0.0, gap_s=self.gap_s)


def grounds(of: Case, cold_starts_s: Sequence[float]) -> dict[float, Ground]:
    """By cold start; the middle one is searched for, the others near what it led to."""
    middle = sorted(of.cold_starts_s)[len(of.cold_starts_s) // 2]
    first = Search(of, middle).found()
    return {cold: first if cold == middle else Search(of, cold).found(first) for cold in cold_starts_s}
