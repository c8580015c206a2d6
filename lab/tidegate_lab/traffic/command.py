"""`tidegate trace`: look at traffic, and write it in the form that `tidegate load --trace` sends."""

from __future__ import annotations

import argparse
import json

import numpy as np

from tidegate_lab.arguments import count, to_write
from tidegate_lab.traffic.flags import add_trace_flags, trace_of
from tidegate_lab.traffic.trace import Trace


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Which trace, and where to."""
    add_trace_flags(parser)
    parser.add_argument("--longest", type=count, metavar="N", help="leave out requests of more tokens than this")
    parser.add_argument("--write", type=to_write, metavar="FILE", help="as JSON-lines")


def trace(arguments: argparse.Namespace) -> int:
    """Tell what it is, and write it where that is asked."""
    taken = trace_of(arguments)
    if arguments.longest is not None:
        taken = no_longer_than(taken, arguments.longest)
    for note in taken.notes:
        print(f"{taken.name}: {note}")
    print(about(taken))
    if arguments.write:
        arguments.write.write_text(lines(taken))
    return 0


def about(trace: Trace) -> str:
    """How much, how uneven and how long, in a line."""
    if not len(trace):
        return f"{trace.name}: no requests in {trace.seconds / 60:.1f} min"
    minutes = np.histogram(trace.at, bins=max(1, int(trace.seconds // 60)), range=(0, max(trace.seconds, 60)))[0]
    return (
        f"{trace.name}: {len(trace):,} requests in {trace.seconds / 60:.1f} min, {trace.rate:.3g} a second, "
        f"{minutes.max() / 60:.3g} in the busiest minute; {trace.prompt.mean():.0f} tokens in and "
        f"{trace.output.mean():.0f} out on average"
    )


def no_longer_than(trace: Trace, tokens: int) -> Trace:
    """Without the requests whose prompt and answer together are longer."""
    kept = trace.prompt + trace.output <= tokens
    left = f"{int((~kept).sum())} requests of more than {tokens} tokens are left out"
    notes = trace.notes if kept.all() else (*trace.notes, left)
    return Trace(trace.name, trace.at[kept], trace.prompt[kept], trace.output[kept], trace.seconds, notes)


def lines(trace: Trace) -> str:
    """JSON-lines, which `read_trace` reads back."""
    rows = zip(trace.at.tolist(), trace.prompt.tolist(), trace.output.tolist(), strict=True)
    names = ("arrived_s", "prompt_tokens", "output_tokens")
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
