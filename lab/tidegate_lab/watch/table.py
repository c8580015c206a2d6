"""Rows of looks, for a terminal that is watched and for a log that is read later."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from tidegate_lab.load.report import seconds
from tidegate_lab.watch.look import Look

HEADER = f"{'time':>6}  {'replicas':>8}  {'ready':>5}  {'queue':>5}  {'running':>7}  {'p99 TTFT':>8}  reason"


def row(look: Look) -> str:
    """One line; what is not known is a question mark, what there is none of a dash."""
    minutes, rest = divmod(int(look.at_s), 60)
    ttft = "-" if look.ttft_p99_s is None else seconds(look.ttft_p99_s)
    why = "; ".join(look.news) or look.reason
    return (
        f"{minutes:>3}:{rest:02}  {_known(look.desired):>8}  {_known(look.ready):>5}  {_known(look.waiting):>5}  "
        f"{_known(look.running):>7}  {ttft:>8}  {why}"
    )


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


class Table:
    """Prints a row whenever replicas changed or the operator said why, and every `every_s` seconds."""

    def __init__(self, console: Console, every_s: float = 5.0) -> None:
        self._console, self._every_s = console, every_s
        self._shown: Look | None = None

    def show(self, look: Look) -> None:
        """Print the row, or leave it out; the header comes with the first. What the operator said is never cut."""
        if self._shown is None:
            self._console.print(Text(HEADER, style="bold"), no_wrap=True, overflow="ellipsis")
        elif not self._news(self._shown, look):
            return
        style = "bold" if look.news else ""
        self._console.print(Text(row(look), style=style), soft_wrap=True)
        self._shown = look

    def _news(self, before: Look, now: Look) -> bool:
        changed = (before.desired, before.ready) != (now.desired, now.ready)
        return changed or bool(now.news) or now.at_s - before.at_s >= self._every_s
