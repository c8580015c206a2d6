"""Files of rows: CSV or JSON-lines, plain or gzipped, and what a cell may say."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from tidegate_lab.traffic.instant import instant

MOST_TOKENS = 2**31 - 1
MOST_CELL = 2**24
"""Characters: a column of prompts' text may stand beside their lengths."""


class TraceError(ValueError):
    """The file is no trace; the message is one line: file, line, column, value, remedy."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request's values by column."""

    where: str
    """FILE:LINE."""
    cells: dict[str, Any]

    def time(self, column: str, *, milliseconds: bool = False) -> int:
        """Nanoseconds: 100 ns digits of a date are more than a float of seconds since 1970 holds."""
        value = self._value(column)
        try:
            return instant(value, milliseconds=milliseconds)
        except ValueError:
            raise TraceError(
                f"{self.where}: {column} {value!r} is no time; give seconds, milliseconds or an ISO 8601 date"
            ) from None

    def tokens(self, column: str) -> int:
        """How many; null is 0."""
        value = self._value(column)
        if value is None:
            return 0
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if isinstance(value, bool) or not 0 <= number <= MOST_TOKENS or number != int(number):
            raise TraceError(f"{self.where}: {column} {value!r} is no number of tokens; give a whole number from 0")
        return int(number)

    def _value(self, column: str) -> Any:
        try:
            return self.cells[column]
        except KeyError:
            raise TraceError(f"{self.where}: has no {column!r}; every request needs one") from None


@dataclass(frozen=True, slots=True)
class Table:
    """A file's rows, and the names of its columns in their order."""

    path: Path
    names: Sequence[str]
    rows: Sequence[Row]


def read_table(path: Path) -> Table:
    """All of a file, which has one row or more; raises TraceError."""
    csv.field_size_limit(MOST_CELL)
    try:
        with _opened(path) as text:
            names, rows = _rows(path, text)
            table = Table(path, names, list(rows))
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except csv.Error as error:
        raise TraceError(f"{path}: is no CSV ({error}); give one row a line, and text with commas in quotes") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is no text in UTF-8 (byte {error.start}); give CSV or JSON-lines") from error
    if not table.rows:
        raise TraceError(f"{path}: has no requests; give one row or line for each")
    return table


def _opened(path: Path) -> TextIO:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    return TextIOWrapper(gzip.open(path) if zipped else path.open("rb"), encoding="utf-8-sig", newline="")


def _rows(path: Path, text: TextIO) -> tuple[Sequence[str], Iterator[Row]]:
    numbered = ((number, line) for number, line in enumerate(text, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise TraceError(f"{path}: is empty; give CSV with a header, or JSON-lines")
    if first[1].lstrip().startswith("{"):
        rows = _json_rows(path, chain([first], numbered))
        head = next(rows)
        return list(head.cells), chain([head], rows)
    if first[1].lstrip().startswith("["):
        raise TraceError(f"{path}: is a JSON array; give JSON-lines, one object a line")
    separator = max(",;\t", key=first[1].count)
    names = [name.strip() for name in next(csv.reader([first[1]], delimiter=separator))]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TraceError(f"{path}: has more than one column {twice[0]!r}; give each a name of its own")
    return names, _csv_rows(path, names, numbered, separator)


def _json_rows(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Row]:
    for number, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path}:{number}: is no JSON ({error.msg}); give one object a line") from error
        if not isinstance(row, dict):
            raise TraceError(f"{path}:{number}: is no object; give one object a line")
        yield Row(f"{path}:{number}", row)


def _csv_rows(path: Path, names: Sequence[str], lines: Iterator[tuple[int, str]], separator: str) -> Iterator[Row]:
    number = 0

    def counted() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007 - the reader's line numbers do not count those left out
            yield line

    for cells in csv.reader(counted(), delimiter=separator):
        where = f"{path}:{number}"
        if len(cells) != len(names):
            raise TraceError(f"{where}: has {len(cells)} cells under a header of {len(names)}; give one for each")
        yield Row(where, dict(zip(names, cells, strict=True)))
