"""All runs of the benchmark, spread over the cores, the long ones first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from tidegate_lab.scaling_bench.answers import ORACLE, UNAVOIDABLE
from tidegate_lab.scaling_bench.cases import CASES, Case, case
from tidegate_lab.scaling_bench.contestants import CONTESTANTS, OURS, Contestant
from tidegate_lab.scaling_bench.ground import Ground, contested, grounds
from tidegate_lab.scaling_bench.keeping import kept
from tidegate_lab.scaling_bench.measured import Measured
from tidegate_lab.scaling_bench.rows import Row, row, with_best_of_tuning
from tidegate_lab.simulate.run import simulate

P = ParamSpec("P")
T = TypeVar("T")


Job = tuple[Case, Ground, Contestant, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to run; empty: all."""

    folder: Path
    """Where runs are kept."""
    workers: int
    traces: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    cold_starts_s: tuple[float, ...] = ()

    def cases(self) -> dict[str, tuple[float, ...]]:
        """The cold starts of each trace."""
        named = [each for each in CASES if not self.traces or each.name in self.traces]
        cold = {
            c.name: tuple(s for s in c.cold_starts_s if s in (self.cold_starts_s or c.cold_starts_s)) for c in named
        }
        return {name: some for name, some in cold.items() if some}

    def contestants(self) -> list[Contestant]:
        return [c for c in CONTESTANTS.values() if not self.policies or c.name in self.policies]


class _Here(Executor):
    """One worker is this process: nothing to start, and a failure shows where it is."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def known(folder: Path, name: str, cold_starts_s: tuple[float, ...]) -> dict[float, Ground]:
    """The oracle's search of one case, in a worker."""
    return kept(folder, ORACLE, f"{name} {cold_starts_s}", lambda: grounds(case(name), cold_starts_s))


def contest(folder: Path, there: Ground, policy: str, setting: float) -> Measured:
    """One contestant's run, in a worker."""

    scenario = contested(there)

    def make() -> Measured:
        return Measured.of(simulate(scenario, CONTESTANTS[policy].make(scenario, there, setting)))

    of = f"{there.case} {there.cold_start_s} {scenario.first_replicas} {scenario.maximum} {there.oracle_peak} {setting}"
    return kept(folder, policy, of, make)


def run(wanted: Wanted, say: Callable[[str], None]) -> list[Row]:
    """Rows in the order of the cases, with the best of tuning marked. A worker's failure ends the run."""
    # Threads of numba in each of as many processes as there are cores would only get in each other's way.
    os.environ["NUMBA_NUM_THREADS"] = "1"
    with _Here() if wanted.workers == 1 else ProcessPoolExecutor(wanted.workers, get_context("spawn")) as pool:
        rows = [*_all(wanted, pool, say)]
    order = {each.name: i for i, each in enumerate(CASES)}
    rows.sort(key=lambda r: (order[r.trace], r.cold_start_s, r.policy, r.setting or 0.0))
    return with_best_of_tuning(rows)


def _all(wanted: Wanted, pool: Executor, say: Callable[[str], None]) -> Iterator[Row]:
    cases = sorted(wanted.cases().items(), key=lambda c: -_effort(case(c[0])))
    searches = {pool.submit(known, wanted.folder, name, cold): case(name) for name, cold in cases}
    there_is: list[tuple[Case, Ground]] = []
    for count, done in enumerate(as_completed(searches), 1):
        each = searches[done]
        for cold, there in done.result().items():
            there_is.append((each, there))
            where = (each.name, cold, each.split)
            yield row(ORACLE, None, False, where, there.oracle, there.oracle)
            yield row(UNAVOIDABLE, None, False, where, there.unavoidable, there.oracle)
        say(f"{count}/{len(searches)} oracles: {each.name}")
    jobs = [(each, there, c, value) for each, there in there_is for c in wanted.contestants() for value in c.values]
    yield from _contests(wanted.folder, pool, jobs, say)


def _contests(folder: Path, pool: Executor, jobs: Sequence[Job], say: Callable[[str], None]) -> Iterator[Row]:
    ordered = sorted(jobs, key=lambda job: -_effort(job[0]) * (10 if job[2].name == OURS else 1))
    runs = {pool.submit(contest, folder, there, c.name, value): (each, there, c, value)
            for each, there, c, value in ordered}  # fmt: skip
    for count, ran in enumerate(as_completed(runs), 1):
        each, there, contestant, value = runs[ran]
        where = (each.name, there.cold_start_s, each.split)
        yield row(contestant.name, value, value == contestant.default, where, ran.result(), there.oracle)
        if count % 50 == 0 or count == len(runs):
            say(f"{count}/{len(runs)} runs")


def _effort(each: Case) -> float:
    """About how long a run takes; only its order matters."""
    return 10.0 if each.is_day else 1.0
