"""Reading a trace from a file, whatever its columns are called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.traffic.table import Table, TraceError, read_table
from tidegate_lab.traffic.trace import Trace

__all__ = ["KNOWN", "Columns", "TraceError", "Unit", "arrivals", "columns_of", "read_trace"]


class Unit(StrEnum):
    """What a number in the column of times counts."""

    SECONDS = "s"
    MILLISECONDS = "ms"


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a trace's three facts stand. `unit` None: by the column's name, else seconds."""

    time: str
    prompt: str
    output: str
    unit: Unit | None = None


KNOWN = (
    Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Columns("timestamp_s", "input_tokens", "output_tokens"),
    Columns("timestamp", "input_length", "output_length", Unit.MILLISECONDS),
    Columns("queued_ts", "input_toks", "output_toks"),
    Columns("Timestamp", "Request tokens", "Response tokens"),
    Columns("arrived_s", "prompt_tokens", "output_tokens"),
)
"""Azure 2023, ServeGen, AIBrix and Mooncake, LLMServingSim's runs of vLLM, BurstGPT, `tidegate load --samples`."""


def read_trace(
    path: str | Path,
    *,
    time: str | None = None,
    prompt: str | None = None,
    output: str | None = None,
    unit: Unit | None = None,
    name: str | None = None,
) -> Trace:
    """The requests of a file, in order of arrival; raises TraceError.

    Columns that are not named are those of a known format. Times are ISO 8601 or numbers; a clock's time counts from
    the first arrival. Lengths of 0 and null become 1, and times out of order are sorted: `Trace.notes` says so.
    """
    table = read_table(Path(path))
    columns = columns_of(table, time, prompt, output, unit)
    trace, _ = arrivals(table, columns)
    return replace(trace, name=name or table.path.name.split(".")[0])


def columns_of(
    table: Table, time: str | None, prompt: str | None, output: str | None, unit: Unit | None = None
) -> Columns:
    """Those that are named, and for the others those of a known format; raises TraceError."""
    for flag, wanted in (("time", time), ("prompt", prompt), ("output", output)):
        if wanted is not None and wanted not in table.names:
            raise TraceError(f"{table.path}: has no column {wanted!r} for the {flag}; it has {', '.join(table.names)}")
    known = next((k for k in KNOWN if {k.time, k.prompt, k.output} <= set(table.names)), None)
    if known is not None:
        kept_unit = known.unit if time in (None, known.time) else None
        columns = Columns(time or known.time, prompt or known.prompt, output or known.output, unit or kept_unit)
    elif time and prompt and output:
        columns = Columns(time, prompt, output, unit)
    else:
        raise TraceError(
            f"{table.path}: its columns are of no known format ({', '.join(table.names)}); "
            "name those of arrival, prompt tokens and output tokens (--time-column, --prompt-column, --output-column)"
        )
    if columns.unit is None and columns.time.lower().endswith(("_ms", "millis", "(ms)")):
        return replace(columns, unit=Unit.MILLISECONDS)
    return columns


def arrivals(table: Table, columns: Columns) -> tuple[Trace, NDArray[np.int64]]:
    """The trace, and for each of its requests which row it was; what is beside it in the row keeps its place so."""
    milliseconds = columns.unit is Unit.MILLISECONDS
    at = np.array([row.time(columns.time, milliseconds=milliseconds) for row in table.rows])
    prompts = np.array([row.tokens(columns.prompt) for row in table.rows])
    outputs = np.array([row.tokens(columns.output) for row in table.rows])
    notes: list[str] = []
    if (np.diff(at) < 0).any():
        notes.append("the requests were not in order of arrival, and were sorted")
    for what, lengths in (("prompts", prompts), ("answers", outputs)):
        if empty := int((lengths == 0).sum()):
            notes.append(f"{empty} {what} of 0 tokens, or null, count as 1")
    order = np.argsort(at, kind="stable")
    seconds = (at[order] - beginning(at)) / 1e9
    trace = Trace(
        name=table.path.name.split(".")[0],
        at=seconds,
        prompt=np.maximum(prompts[order], 1).astype(np.int32),
        output=np.maximum(outputs[order], 1).astype(np.int32),
        seconds=float(seconds[-1]),
        notes=tuple(notes),
    )
    return trace, order


def beginning(nanoseconds: NDArray[np.int64]) -> int:
    """What counts as 0: times further from it than the trace is long are a clock's, and begin at the first."""
    first, last = int(nanoseconds.min()), int(nanoseconds.max())
    return first if first < 0 or first > last - first else 0
