"""Reading a trace from a file: CSV or JSON-lines, plain or gzipped, whatever its columns are called."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tidegate_lab.traffic.instant import instant
from tidegate_lab.traffic.trace import Trace

MOST_TOKENS = 2**31 - 1


class TraceError(ValueError):
    """The file is no trace; the message is one line: file, line, column, value, remedy."""


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
    path = Path(path)
    try:
        with _opened(path) as text:
            columns, rows = _rows(path, text, time, prompt, output, unit)
            table = [(_time(where, row, columns), *_lengths(where, row, columns)) for where, row in rows]
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is no text in UTF-8 (byte {error.start}); give CSV or JSON-lines") from error
    if not table:
        raise TraceError(f"{path}: has no requests; give one row or line for each")
    at, prompts, outputs = (np.array(column) for column in zip(*table, strict=True))
    return _trace(name or path.name.split(".")[0], at, prompts, outputs)


def _trace(name: str, nanoseconds: Any, prompts: Any, outputs: Any) -> Trace:
    notes: list[str] = []
    if (np.diff(nanoseconds) < 0).any():
        notes.append("the requests were not in order of arrival, and were sorted")
    for what, lengths in (("prompts", prompts), ("answers", outputs)):
        if empty := int((lengths == 0).sum()):
            notes.append(f"{empty} {what} of 0 tokens, or null, count as 1")
    order = np.argsort(nanoseconds, kind="stable")
    ordered = nanoseconds[order]
    # Times further from zero than the trace is long are a clock's, not seconds since its beginning.
    if ordered[0] < 0 or ordered[0] > ordered[-1] - ordered[0]:
        ordered = ordered - ordered[0]
    return Trace(
        name=name,
        at=ordered / 1e9,
        prompt=np.maximum(prompts[order], 1).astype(np.int32),
        output=np.maximum(outputs[order], 1).astype(np.int32),
        seconds=float(ordered[-1]) / 1e9,
        notes=tuple(notes),
    )


def _opened(path: Path) -> TextIO:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    return TextIOWrapper(gzip.open(path) if zipped else path.open("rb"), encoding="utf-8-sig", newline="")


Row = dict[str, Any]


def _rows(
    path: Path, text: TextIO, time: str | None, prompt: str | None, output: str | None, unit: Unit | None
) -> tuple[Columns, Iterable[tuple[str, Row]]]:
    """The columns, and each row with where it stands."""
    numbered = ((number, line) for number, line in enumerate(text, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise TraceError(f"{path}: is empty; give CSV with a header, or JSON-lines")
    lines = chain([first], numbered)
    if first[1].lstrip().startswith("{"):
        records = _json_rows(path, lines)
        head = next(records)
        names: Sequence[str] = list(head[1])
        rows: Iterator[tuple[str, Row]] = chain([head], records)
    else:
        separator = max(",;\t", key=first[1].count)
        names = next(csv.reader([first[1]], delimiter=separator))
        next(lines)
        rows = _csv_rows(path, names, lines, separator)
    return _columns(path, names, time, prompt, output, unit), rows


def _json_rows(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[str, Row]]:
    for number, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path}:{number}: is no JSON ({error.msg}); give one object a line") from error
        if not isinstance(row, dict):
            raise TraceError(f'{path}:{number}: is no object; give one object a line, as in {{"timestamp_s": 0.1, …}}')
        yield f"{path}:{number}", row


def _csv_rows(
    path: Path, names: Sequence[str], lines: Iterator[tuple[int, str]], separator: str
) -> Iterator[tuple[str, Row]]:
    numbers: list[int] = []

    def told() -> Iterator[str]:
        for number, line in lines:
            numbers.append(number)
            yield line

    for cells in csv.reader(told(), delimiter=separator):
        where = f"{path}:{numbers[-1]}"
        numbers.clear()
        if len(cells) != len(names):
            raise TraceError(f"{where}: has {len(cells)} cells under a header of {len(names)}; give one for each")
        yield where, dict(zip(names, cells, strict=True))


def _columns(
    path: Path, names: Sequence[str], time: str | None, prompt: str | None, output: str | None, unit: Unit | None
) -> Columns:
    for flag, wanted in (("time", time), ("prompt", prompt), ("output", output)):
        if wanted is not None and wanted not in names:
            raise TraceError(f"{path}: has no column {wanted!r} for {flag}; it has {', '.join(names)}")
    known = next((k for k in KNOWN if {k.time, k.prompt, k.output} <= set(names)), None)
    if known is None and not (time and prompt and output):
        raise TraceError(
            f"{path}: its columns are of no known format ({', '.join(names)}); "
            "name those of arrival, prompt tokens and output tokens"
        )
    if known is not None:
        kept_unit = known.unit if time in (None, known.time) else None
        columns = Columns(time or known.time, prompt or known.prompt, output or known.output, unit or kept_unit)
    else:
        assert time and prompt and output
        columns = Columns(time, prompt, output, unit)
    if columns.unit is None and columns.time.lower().endswith(("_ms", "millis", "(ms)")):
        return Columns(columns.time, columns.prompt, columns.output, Unit.MILLISECONDS)
    return columns


def _value(where: str, row: Row, column: str) -> Any:
    try:
        return row[column]
    except KeyError:
        raise TraceError(f"{where}: has no {column!r}; every request needs one") from None


def _time(where: str, row: Row, columns: Columns) -> int:
    """Nanoseconds: 100 ns digits of a date are more than a float of seconds since 1970 holds."""
    value = _value(where, row, columns.time)
    try:
        return instant(value, milliseconds=columns.unit is Unit.MILLISECONDS)
    except ValueError:
        raise TraceError(
            f"{where}: {columns.time} {value!r} is no time; give seconds, milliseconds or an ISO 8601 date"
        ) from None


def _lengths(where: str, row: Row, columns: Columns) -> tuple[int, int]:
    return _tokens(where, row, columns.prompt), _tokens(where, row, columns.output)


def _tokens(where: str, row: Row, column: str) -> int:
    value = _value(where, row, column)
    if value is None:
        return 0
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= MOST_TOKENS or number != int(number):
        raise TraceError(f"{where}: {column} {value!r} is no number of tokens; give a whole number from 0")
    return int(number)
