"""Naming a trace on a command line: a file of anybody's, or one of the benchmark's by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate_lab.arguments import from_zero, positive
from tidegate_lab.traffic.named import TRACES, named
from tidegate_lab.traffic.read import Unit, read_trace
from tidegate_lab.traffic.shape import at_times_the_rate, cut
from tidegate_lab.traffic.table import TraceError
from tidegate_lab.traffic.trace import Trace

MOST_REQUESTS = 20_000_000
"""About 2 GB while they are served, and sixty days of the day-long trace."""


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
    parser.add_argument("--start", type=from_zero, default=0.0, metavar="S", help="leave out the seconds before (0)")
    parser.add_argument("--seconds", type=positive, metavar="S", help="take only so many; default: all")
    parser.add_argument("--times", type=positive, default=1.0, metavar="N", help="as many users (1), also 0.5 or 3")


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
    except ValueError as error:
        raise TraceError(str(error)) from error
    return scaled(trace, arguments.times, f"--times {arguments.times:g}")


def scaled(trace: Trace, factor: float, asked: str) -> Trace:
    """Of so many times as many users; raises TraceError where that is too many. `asked` is the flag and its value."""
    bearable(len(trace) * factor, asked)
    return at_times_the_rate(trace, factor)


def bearable(requests: float, asked: str) -> None:
    """Raises TraceError where that many requests would not fit into memory."""
    if requests > MOST_REQUESTS:
        raise TraceError(f"{asked}: makes {requests:,.0f} requests; {MOST_REQUESTS:,} is the most that is tried")
