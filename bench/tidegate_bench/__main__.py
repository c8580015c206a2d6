"""`python -m tidegate_bench`: measure, print a table, leave a JSON file. `make bench-engine` runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tidegate_bench.llama_cpp_environment import CannotBuild, environment, ready
from tidegate_bench.machine import Machine, look
from tidegate_bench.plan import DECODES, PROMPT, DecodeFigure
from tidegate_bench.quality import quality_command, quality_of
from tidegate_bench.report import Report, bandwidth_reached
from tidegate_bench.settings import SPEED, BenchSettings, parse_settings
from tidegate_bench.speed import measure_decode, measure_prompt, warm_up
from tidegate_bench.turns import Comparison, compare
from tidegate_bench.worker_process import Worker, WorkerFailed, output_of


def main(arguments: Sequence[str]) -> int:
    """Run the yardstick; the exit code."""
    settings = parse_settings(arguments)
    console = Console(stderr=True)
    try:
        report = _measure(settings, console)
    except (CannotBuild, WorkerFailed) as error:
        console.print(f"bench: {error}", style="red", markup=False)
        return 1
    report.write(settings.out)
    if report.figures:
        Console().print(report.table())
    if report.perplexity:
        Console().print(report.quality_table())
    for remark in report.remarks:
        console.print(remark, markup=False)
    console.print(f"written to {settings.out}", markup=False)
    return 0


def _measure(settings: BenchSettings, console: Console) -> Report:
    report = Report(settings.model.name, look(), settings.threads)
    if set(settings.only) & set(SPEED):
        _speed(settings, report, console)
    if "perplexity" in settings.only:
        console.print("  perplexity")
        command = quality_command(sys.executable, settings.model, settings.threads)
        report.perplexity = {found.text: found for found in quality_of(output_of(command, _engine_path()))}
    return report


def _speed(settings: BenchSettings, report: Report, console: Console) -> None:
    machine = report.machine
    common = ["--model", str(settings.model), "--threads", str(settings.threads)]
    peer_python = settings.llama_cpp_python or ready(environment(settings.cache, machine.instruction_sets))
    ours = Worker(Path(sys.executable), "tidegate_bench.workers.ours", common, _engine_path())
    peer = Worker(peer_python, "tidegate_bench.workers.llama_cpp", common)
    with ours, peer:
        for worker in (ours, peer):
            report.engines[worker.hello.name] = worker.hello.kernels
            warm_up(worker)
        if PROMPT.key in settings.only:
            console.print(f"  {PROMPT.key}")
            pairs = measure_prompt(PROMPT, ours, peer, settings.rounds)
            report.compared(PROMPT.key, compare(pairs), peer.hello.name, {})
        for figure in DECODES:
            if figure.key in settings.only:
                console.print(f"  {figure.key}")
                found = compare(list(measure_decode(figure, ours, peer, settings.rounds)))
                report.compared(figure.key, found, peer.hello.name, _bandwidth(figure, found, ours, machine))


def _bandwidth(figure: DecodeFigure, found: Comparison, ours: Worker, machine: Machine) -> dict[str, float]:
    held = figure.requests * (figure.context + figure.new_tokens / 2)
    return bandwidth_reached(ours.hello, found.ours / figure.requests, held, machine)


def _engine_path() -> list[Path]:
    """Where this process found the engine's sources, so that workers of a working tree measure that tree."""
    return [Path(entry) for entry in sys.path if (Path(entry) / "tidegate_engine").is_dir()][:1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
