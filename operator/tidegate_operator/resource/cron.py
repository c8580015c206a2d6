"""Times that come again, as cron writes them: minute, hour, day of month, month, day of week."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6}
_MONTHS |= {"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _WEEKDAYS),
)
_PART = re.compile(r"(\*|([0-9a-z]+)(?:-([0-9a-z]+))?)(?:/([0-9]{1,2}))?")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A parsed expression. Where both days are given, either is enough, as everywhere in cron."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    any_day: bool
    any_weekday: bool
    every_hour: bool

    def on(self, day: date) -> bool:
        """Whether it happens on this day."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day and by_weekday if self.any_day or self.any_weekday else by_day or by_weekday


def parse_cron(text: str) -> Cron:
    """Read `0 8 * * mon-fri`. Raises ValueError that names the field."""
    words = text.lower().split()
    if len(words) != len(_FIELDS):
        raise ValueError(f"{text!r} is no cron expression; write minute, hour, day of month, month and day of week")
    minutes, hours, days, months, weekdays = (_values(word, *field) for word, field in zip(words, _FIELDS, strict=True))
    any_day, any_weekday = words[2].startswith("*"), words[4].startswith("*")
    if any_weekday and not any(day <= _LONGEST_MONTH[month - 1] for day in days for month in months):
        raise ValueError(f"{text!r} never comes: no such day of month is in such a month")
    return Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=any_day,
        any_weekday=any_weekday,
        every_hour=words[1].startswith("*"),
    )


def _values(word: str, field: str, lowest: int, highest: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        first = last = None
        if match is not None:
            step = int(match[4] or 1)
            first = lowest if match[1] == "*" else _number(match[2], names)
            last = highest if match[1] == "*" or (match[4] and not match[3]) else _number(match[3] or match[2], names)
        if first is None or last is None or not lowest <= first <= last <= highest or step == 0:
            raise ValueError(f"{part!r} is no {field}; write {lowest} to {highest}, a list, a range, or */STEP")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, names: dict[str, int]) -> int | None:
    return names.get(text, int(text) if text.isdecimal() else None)
