"""`python -m tidegate_lab.scaling_bench`: run what was not run yet, print tables and answers, leave a JSON file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tidegate_lab.scaling_bench.answers import ORACLE, UNAVOIDABLE, answers
from tidegate_lab.scaling_bench.cases import CASES
from tidegate_lab.scaling_bench.contestants import CONTESTANTS
from tidegate_lab.scaling_bench.report import write
from tidegate_lab.scaling_bench.run import Wanted, run
from tidegate_lab.scaling_bench.tables import tables
from tidegate_lab.traffic.read import TraceError


def settings(arguments: Sequence[str]) -> tuple[Wanted, Path]:
    """Flags; a name that is none ends the program with one line."""
    parser = argparse.ArgumentParser("scaling_bench", description="Our scaling against others', in the simulator.")
    parser.add_argument("--only", default="", metavar="NAMES", help="traces and policies, separated by commas")
    parser.add_argument("--cold-start", default="", metavar="SECONDS", help="some of the cold starts")
    parser.add_argument("--out", type=Path, default=Path("build/bench/scaling.json"))
    parser.add_argument("--kept", type=Path, default=Path("build/bench/scaling-runs"), help="where runs are kept")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N")
    told = parser.parse_args(arguments)
    names = [name for name in told.only.split(",") if name]
    traces = tuple(name for name in names if name in {c.name for c in CASES})
    policies = tuple(name for name in names if name in CONTESTANTS or name in (ORACLE, UNAVOIDABLE))
    for name in names:
        if name not in (*traces, *policies):
            known = ", ".join([*(c.name for c in CASES), *CONTESTANTS])
            parser.error(f"--only {name}: is neither a trace nor a policy; there are {known}")
    try:
        cold = tuple(float(s) for s in told.cold_start.split(",") if s)
    except ValueError:
        parser.error(f"--cold-start {told.cold_start}: give seconds separated by commas, as 30,90")
    wanted = Wanted(
        folder=told.kept, workers=max(1, told.workers), traces=traces, policies=policies, cold_starts_s=cold
    )
    return wanted, told.out


def main(arguments: Sequence[str]) -> int:
    """The exit code; 1 where something could not be run."""
    wanted, out = settings(arguments)
    quiet = Console(stderr=True)
    try:
        rows = run(wanted, lambda what: quiet.print(f"  {what}", markup=False))
    except TraceError as error:
        quiet.print(f"scaling_bench: {error}", markup=False)
        return 1
    told = answers(rows)
    write(out, rows, told)
    console = Console(width=max(160, Console().width))
    for table in tables(rows):
        console.print(table)
    for answer in told:
        console.print(answer.sentence, markup=False, highlight=False)
    console.print(f"written to {out}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
