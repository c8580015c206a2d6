"""Durations and quantities as Kubernetes users write them, read into seconds and plain numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")
QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi|)")

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_FACTORS = {"": Decimal(1), "m": Decimal("0.001")}
_FACTORS |= {unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)}
_FACTORS |= {unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)}


def parse_duration(value: object) -> float:
    """Seconds of `500ms`, `2s`, `5m` or `1h`; numbers are seconds already. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration; write one like 500ms, 30s or 5m")
    return float(Decimal(match[1]) * _SECONDS[match[2]])


def format_duration(seconds: float) -> str:
    """Three significant digits, for people: `4.25ms`, `412ms`, `2.7s`, `340s`."""
    if seconds < 0.9995:
        return f"{Decimal(f'{seconds * 1000:.3g}'):f}ms"
    return f"{Decimal(f'{seconds:.3g}'):f}s"


def parse_quantity(value: object) -> Decimal:
    """The number a Kubernetes quantity means (`200m` is 0.2, `1Gi` is 1073741824). Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    match = QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a quantity; write one like 2, 500m, 512Mi or 4Gi")
    return Decimal(match[1]) * _FACTORS[match[2]]


def _quantity_text(value: object) -> str:
    parse_quantity(value)
    return str(value)


def _bytes_or_auto(value: object) -> int | None:
    if value is None or value == "auto":
        return None
    return int(parse_quantity(value))


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; written with a unit."""

Shown = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str)]
"""Seconds, written for people."""

Quantity = Annotated[str, BeforeValidator(_quantity_text)]
"""Passed on to Kubernetes as it was written."""

BytesOrAuto = Annotated[int | None, BeforeValidator(_bytes_or_auto)]
"""Bytes; None is the word `auto`: as much as there is."""
