"""Naming a trace on a command line: a file of anybody's, or one of the benchmark's by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate_lab.traffic.named import TRACES, named
from tidegate_lab.traffic.read import Unit, read_trace
from tidegate_lab.traffic.shape import at_times_the_rate, cut
from tidegate_lab.traffic.table import TraceError
from tidegate_lab.traffic.trace import Trace


def add_trace_flags(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`--trace`, what its columns are called, and what part of it is taken."""
    parser.add_argument(
        "--trace",
        required=required,
        metavar="FILE",
        help=f"CSV or JSON-lines, plain or gzipped, or one of {', '.join(TRACES)}",
    )
    parser.add_argument("--time-column", help="times, as numbers or ISO 8601; default: that of a known format")
    parser.add_argument("--prompt-column", help="tokens of the prompt")
    parser.add_argument("--output-column", help="tokens of the answer")
    parser.add_argument("--time-unit", choices=[str(unit) for unit in Unit], help="of times that are numbers (s)")
    parser.add_argument("--start", type=float, default=0.0, metavar="S", help="leave out the seconds before (0)")
    parser.add_argument("--seconds", type=float, metavar="S", help="take only so many; default: all")
    parser.add_argument("--times", type=float, default=1.0, metavar="N", help="as many users (1), also 0.5 or 3")


def trace_of(arguments: argparse.Namespace) -> Trace:
    """The trace that the flags name. Raises TraceError."""
    name: str = arguments.trace
    if not Path(name).exists() and name in TRACES:
        trace = named(name)
    elif not Path(name).exists():
        raise TraceError(f"--trace {name}: is not there, nor a trace's name; the names are {', '.join(TRACES)}")
    else:
        trace = read_trace(
            name,
            time=arguments.time_column,
            prompt=arguments.prompt_column,
            output=arguments.output_column,
            unit=Unit(arguments.time_unit) if arguments.time_unit else None,
        )
    try:
        if arguments.start or arguments.seconds is not None:
            seconds = trace.seconds - arguments.start if arguments.seconds is None else arguments.seconds
            trace = cut(trace, arguments.start, seconds)
        return at_times_the_rate(trace, arguments.times)
    except ValueError as error:
        raise TraceError(str(error)) from error
