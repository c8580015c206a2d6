"""A run that was measured on one replica: what was asked, and when each first and last token came."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate_lab.simulate.fixed import Served
from tidegate_lab.traffic.read import Unit, arrivals, beginning, columns_of
from tidegate_lab.traffic.table import TraceError, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Columns, where they are not those of a known format. All times are of one clock."""

    time: str | None = None
    prompt: str | None = None
    output: str | None = None
    first: str | None = None
    last: str | None = None
    unit: Unit | None = None


_KNOWN = (("first_token_ts", "last_token_ts"), ("first_token_s", "last_token_s"))
"""LLMServingSim's runs of vLLM, and `tidegate load --samples`."""


def read_measured(path: str | Path, names: Names = Names()) -> Served:
    """Every request of the run, in order of arrival; raises TraceError, also where one has not ended."""
    table = read_table(Path(path))
    columns = columns_of(table, names.time, names.prompt, names.output, names.unit)
    known = next((pair for pair in _KNOWN if set(pair) <= set(table.names)), (None, None))
    first, last = names.first or known[0], names.last or known[1]
    if first is None or last is None:
        raise TraceError(f"{path}: tells no first and last token ({', '.join(table.names)}); name those columns")
    trace, order = arrivals(table, columns)
    milliseconds = columns.unit is Unit.MILLISECONDS
    zero = beginning(np.array([row.time(columns.time, milliseconds=milliseconds) for row in table.rows]))
    ordered = [table.rows[index] for index in order]
    first_at = np.array([row.time(first, milliseconds=milliseconds) - zero for row in ordered]) / 1e9
    last_at = np.array([row.time(last, milliseconds=milliseconds) - zero for row in ordered]) / 1e9
    for row, arrived, began, ended in zip(ordered, trace.at, first_at, last_at, strict=True):
        if not arrived <= began <= ended:
            raise TraceError(f"{row.where}: its tokens do not follow its arrival; are the columns of one clock?")
    return Served(trace, first_at, last_at)
