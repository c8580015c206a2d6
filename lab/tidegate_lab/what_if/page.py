"""A simulation as one page that needs nothing else: figures, plots, and every change of the number with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tidegate_lab.load.report import seconds
from tidegate_lab.simulate.outcome import Moment, Outcome
from tidegate_lab.what_if.plot import Line, Mark, Plot, Span, clock
from tidegate_lab.what_if.series import Series

BLUE, ORANGE = "#2a78d6", "#eb6834"
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a19; --soft: #6b6a65; --line: #dddcd6; --paper: #fcfcfb }
@media (prefers-color-scheme: dark) { :root { --ink: #f2f1ec; --soft: #a3a29b; --line: #3a3a37; --paper: #1a1a19 } }
body { font: 14px system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1040px;
  margin: 24px auto; padding: 0 16px }
h1 { font-size: 18px } h2 { font-size: 13px; font-weight: 600; margin: 18px 0 2px }
h2 span { font-weight: 400; color: var(--soft); margin-left: 12px } h2 i { display: inline-block; width: 14px;
  height: 3px; vertical-align: middle; margin-right: 4px }
pre { white-space: pre-wrap; font: 13px ui-monospace, monospace }
svg { width: 100%; display: block } svg text { font-size: 11px; fill: var(--soft) }
path { fill: none; stroke-width: 1.6 } .grid { stroke: var(--line) }
.limit { stroke: var(--soft); stroke-dasharray: 5 4 }
.fault { fill: #e34948; opacity: .14 } .piece { fill: transparent } .piece:hover { fill: var(--soft); opacity: .18 }
circle { fill: var(--paper); stroke: var(--ink); stroke-width: 1.4 } circle:hover { fill: var(--ink) }
table { border-collapse: collapse; margin-top: 6px } td, th { text-align: left; padding: 2px 14px 2px 0;
  border-bottom: 1px solid var(--line); vertical-align: top } td.n { text-align: right }
"""


def page(outcome: Outcome, told: Sequence[str]) -> str:
    """The document; `told` are the figures in words."""
    plots = _plots(outcome, Series.of(outcome))
    panels = "\n".join(f"<h2>{escape(plot.title)}{_legend(plot)}</h2>\n{plot.svg()}" for plot in plots)
    changes = "\n".join(
        f'<tr><td>{clock(m.at)}</td><td class="n">{m.before}</td><td class="n">{m.choice.replicas}</td>'
        f"<td>{escape(m.choice.reason)}</td><td>{escape(m.choice.message)}</td></tr>"
        for m in outcome.moments
        if m.choice.replicas != m.before
    )
    title = escape(f"{outcome.policy} over {outcome.scenario.trace.name}")
    text = escape("\n".join(told))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n<pre>{text}</pre>\n{panels}\n"
        f"<h2>Changes</h2>\n<table><tr><th>time</th><th>from</th><th>to</th><th>reason</th><th>message</th></tr>\n"
        f"{changes}</table></body></html>\n"
    )


def _plots(outcome: Outcome, series: Series) -> list[Plot]:
    length, targets = series.seconds, outcome.scenario.targets
    hover = _hover(outcome, series)
    spans = [
        Span(fault.at, fault.at + fault.seconds, f"{fault.kind} from {clock(fault.at)}, {fault.share:.0%} of pods")
        for fault in outcome.scenario.faults
    ]
    marks = [
        Mark(m.at, m.choice.replicas, f"{clock(m.at)}: {m.before} to {m.choice.replicas}. {_why(m)}")
        for m in outcome.moments
        if m.choice.replicas != m.before
    ]

    def plot(title: str, *lines: Line, limit: float | None = None, marked: bool = False) -> Plot:
        chosen = marks if marked else ()
        return Plot(title=title, lines=lines, seconds=length, limit=limit, hover=hover, spans=spans, marks=chosen)

    return [
        plot("Arrivals a second", Line("arrivals", BLUE, series.arrivals_per_s)),
        plot("Replicas", Line("wanted", ORANGE, series.wanted), Line("ready", BLUE, series.ready), marked=True),
        plot("Requests inside", Line("waiting", ORANGE, series.waiting), Line("running", BLUE, series.running)),
        plot("p99 of TTFT, s", Line("TTFT", BLUE, series.ttft_p99), limit=targets.ttft_s),
        plot("p99 of TPOT, s", Line("TPOT", BLUE, series.tpot_p99), limit=targets.tpot_s),
        plot("Share of requests that missed a target, by arrival", Line("missed", ORANGE, series.missed)),
    ]


def _hover(outcome: Outcome, series: Series) -> list[str]:
    """Of each piece, its figures and the last look's reason."""
    why = [""] * len(series.wanted)
    for moment in outcome.moments:
        why[min(len(why) - 1, int(moment.at / series.width))] = _why(moment)
    told = []
    for n, reason in enumerate(why):
        missed = float(series.missed[n])
        lines = (
            f"{clock(n * series.width)}: {series.arrivals_per_s[n]:.2f} requests/s",
            f"{_whole(series.wanted[n])} replicas wanted, {_whole(series.ready[n])} ready",
            f"{_whole(series.waiting[n])} waiting, {_whole(series.running[n])} running",
            f"p99 of TTFT {_time(series.ttft_p99[n])}, of TPOT {_time(series.tpot_p99[n])}",
            f"{'-' if math.isnan(missed) else f'{missed:.1%}'} missed",
            reason,
        )
        told.append("\n".join(line for line in lines if line))
    return told


def _why(moment: Moment) -> str:
    return ": ".join(part for part in (moment.choice.reason, moment.choice.message) if part)


def _whole(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f}"


def _time(value: float) -> str:
    return "-" if math.isnan(value) else seconds(value)


def _legend(plot: Plot) -> str:
    if len(plot.lines) < 2:
        return ""
    return "".join(f'<span><i style="background:{line.colour}"></i>{escape(line.name)}</span>' for line in plot.lines)
