"""`python -m tidegate_bench`: measure, print a table, leave a JSON file. `make bench-engine` runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from tidegate_bench.llama_cpp_environment import CannotBuild
from tidegate_bench.run import Run
from tidegate_bench.settings import parse_settings
from tidegate_bench.worker_process import WorkerFailed


def main(arguments: Sequence[str]) -> int:
    """Run the yardstick; the exit code."""
    settings = parse_settings(arguments)
    console = Console(stderr=True)
    run = Run(settings, lambda what: console.print(f"  {what}", markup=False))
    code = 0
    try:
        run.measure()
    except (CannotBuild, WorkerFailed) as error:
        # What was measured before is not lost, and says that it is not all.
        run.report.remarks.append(f"the run ended early: {error}")
        code = 1
    run.report.write(settings.out)
    for table in run.report.tables():
        Console().print(table)
    for remark in run.report.remarks:
        console.print(remark, markup=False)
    console.print(f"written to {settings.out}", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
