"""Plots as SVG text: lines over time on one axis, with what is said of them on hover. No script, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000.0, 150.0, 56.0, 8.0, 20.0


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A column over equal pieces of time, drawn in steps; NaN leaves a gap."""

    name: str
    colour: str
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, at a height of the axis."""

    at: float
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time that is shaded."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One panel; `seconds` is the length of the axis of time, `limit` a line to stay below."""

    title: str
    lines: Sequence[Line]
    seconds: float
    marks: Sequence[Mark] = ()
    spans: Sequence[Span] = ()
    limit: float | None = None
    hover: Sequence[str] = ()
    """What is said of each piece."""

    def svg(self) -> str:
        """The element."""
        top = self._highest()
        parts = [
            f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(self.title)}">',
            *self._axes(top),
            *(self._rectangle(span.start, span.end, span.text, "fault") for span in self.spans),
            *(self._path(line, top) for line in self.lines),
        ]
        if self.limit is not None:
            y = _y(self.limit, top)
            parts.append(f'<line class="limit" x1="{LEFT:g}" x2="{WIDTH:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        width = self.seconds / max(1, len(self.hover))
        parts += [self._rectangle(n * width, (n + 1) * width, text, "piece") for n, text in enumerate(self.hover)]
        parts += [
            f'<circle cx="{self._x(mark.at):.1f}" cy="{_y(mark.value, top):.1f}" r="3.5">'
            f"<title>{escape(mark.text)}</title></circle>"
            for mark in self.marks
        ]
        return "\n".join((*parts, "</svg>"))

    def _highest(self) -> float:
        values = [float(np.nanmax(line.values)) for line in self.lines if not np.isnan(line.values).all()]
        values += [mark.value for mark in self.marks] + ([] if self.limit is None else [self.limit])
        return ceiling(max(values, default=1.0))

    def _x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT) * at / self.seconds

    def _path(self, line: Line, top: float) -> str:
        width, pen, path = self.seconds / len(line.values), False, []
        for n, value in enumerate(line.values.tolist()):
            if math.isnan(value):
                pen = False
                continue
            y = _y(value, top)
            path.append(f"{'L' if pen else 'M'}{self._x(n * width):.1f} {y:.1f}H{self._x((n + 1) * width):.1f}")
            pen = True
        return f'<path d="{"".join(path)}" stroke="{line.colour}"/>'

    def _rectangle(self, start: float, end: float, text: str, kind: str) -> str:
        x, width = self._x(start), self._x(min(end, self.seconds)) - self._x(start)
        size = f'x="{x:.1f}" y="{TOP:g}" width="{max(width, 1):.1f}" height="{HEIGHT - TOP - BOTTOM:g}"'
        return f'<rect class="{kind}" {size}><title>{escape(text)}</title></rect>'

    def _axes(self, top: float) -> list[str]:
        parts = []
        for share in (0.0, 0.5, 1.0):
            y = _y(share * top, top)
            parts.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{share * top:,g}</text>')
        apart = _apart(self.seconds)
        for n in range(int(self.seconds / apart) + 1):
            x = self._x(n * apart)
            anchor = "end" if x > WIDTH - 20 else "middle"
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 5:g}" text-anchor="{anchor}">{clock(n * apart)}</text>')
        return parts


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def ceiling(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 and 10 with noughts: a good end for an axis."""
    if not value > 0:
        return 1.0
    unit: float = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 4, 6, 8, 10, 20) if step * unit >= value)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(value, top) / top


def _apart(seconds: float) -> float:
    """Between two times on the axis: seven or fewer of them."""
    return next((s for s in (10.0, 30, 60, 120, 300, 600, 1200, 3600, 7200, 14_400) if seconds / s <= 7), 86_400.0)
