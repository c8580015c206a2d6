"""A moment as people write it, in whole nanoseconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(:\d\d)[.,](\d+)")

_CLOCKS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000))
"""From this value on, a number is a clock's of so many nanoseconds: 1e11 seconds would be the year 5138."""


def instant(value: object, *, milliseconds: bool = False) -> int:
    """Nanoseconds of a number of seconds (or milliseconds), since 1970 or any beginning, or of an ISO 8601 date.

    A date without a zone is taken as UTC. Raises ValueError for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no time")
    try:
        number = float(value)
    except ValueError:
        nanoseconds = _date(str(value).strip())
    except OverflowError:
        nanoseconds = 2**63
    else:
        nanoseconds = _number(number, milliseconds) if math.isfinite(number) else 2**63
    if abs(nanoseconds) >= 2**63:
        raise ValueError(f"{value!r} is no time that 64 bits hold, 1677 to 2262")
    return nanoseconds


def _number(number: float, milliseconds: bool) -> int:
    unit = 1_000_000 if milliseconds else 1_000_000_000
    unit = next((nanoseconds for least, nanoseconds in _CLOCKS if abs(number) >= least), unit)
    # Apart: the product of the whole has 19 digits, and a float 15.
    whole = int(number)
    return whole * unit + round((number - whole) * unit)


def _date(text: str) -> int:
    fraction = _FRACTION.search(text)
    moment = datetime.fromisoformat(_FRACTION.sub(r"\1", text, count=1))
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    since = moment - _EPOCH
    digits = fraction.group(2)[:9].ljust(9, "0") if fraction else "0"
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int(digits)
