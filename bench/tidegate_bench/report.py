"""What a run leaves behind: one JSON file, and a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from tidegate_bench.machine import Machine
from tidegate_bench.messages import Hello
from tidegate_bench.mixed import Mixed, quantile
from tidegate_bench.quality import TextQuality
from tidegate_bench.start_time import Starts
from tidegate_bench.turns import QUIET, Comparison


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `ratio` above 1 is better: of seconds it is the peer's over ours."""

    ours: float
    peer: float | None
    ratio: float | None
    peer_name: str
    unit: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """A run, as far as it has come."""

    model: str
    machine: Machine
    threads: int
    engines: dict[str, str] = field(default_factory=dict)
    """by name, what computes, in the engine's own words"""
    perplexity: dict[str, TextQuality] = field(default_factory=dict)
    """by text"""
    figures: dict[str, Figure] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """what a reader of the figures must know"""

    def compared(self, key: str, comparison: Comparison, peer_name: str, bandwidth: dict[str, float]) -> None:
        """Add a figure of tokens a second."""
        detail = {name: value for name, value in asdict(comparison).items() if name not in ("ours", "peer", "ratio")}
        self.figures[key] = Figure(
            comparison.ours, comparison.peer, comparison.ratio, peer_name, "tokens/s", detail | bandwidth
        )

        if comparison.others_cores > QUIET:
            self.remarks.append(
                f"{key}: others took {comparison.others_cores:.2f} cores meanwhile; llama.cpp's threads spin and keep "
                "theirs, ours sleep and lose them, so the ratio is lower than on a quiet machine"
            )

    def served(self, mixed: Mixed, peer_name: str) -> None:
        """Add the figures of mixed traffic."""
        about = {"requests": mixed.requests, "new_tokens": mixed.new_tokens}
        ours, peer = (mixed.new_tokens / course.wall for course in (mixed.ours_at_once, mixed.peer_at_once))
        self.figures["mixed_throughput"] = Figure(ours, peer, ours / peer, peer_name, "new tokens/s", about)
        waits = (mixed.ours_arriving.first, mixed.peer_arriving.first)
        ours, peer = (quantile(first, 0.99) for first in waits)
        medians = dict(zip(("ours_p50", "peer_p50"), (quantile(first, 0.5) for first in waits), strict=True))
        detail = about | {"arrivals_per_second": mixed.rate} | medians
        self.figures["mixed_ttft_p99"] = Figure(ours, peer, peer / ours, peer_name, "s", detail)
        self.remarks.append(
            f"mixed: ours is a server with its HTTP and its client on these cores; {peer_name} is driven by its batch "
            "interface in its own process and pays for neither. Each had the machine for itself, one after the other."
        )

    def started(self, starts: Starts, peer: float | None, peer_name: str) -> None:
        """Add the time to the first token."""
        detail = {"import_torch": starts.import_torch, "over_import_torch": starts.ratio, "parts": starts.parts}
        self.figures["start"] = Figure(
            starts.engine, peer, None if peer is None else peer / starts.engine, peer_name, "s", detail
        )
        self.remarks.append(f"start: {starts.ratio:.2f} times a bare import of torch ({starts.import_torch:.2f} s)")

    def write(self, path: Path) -> None:
        """As JSON, rounded to four digits that mean something."""
        found = asdict(self)
        found |= found.pop("figures")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_rounded(found), indent=1) + "\n", encoding="utf-8")

    def tables(self) -> list[Table]:
        """Those that have lines."""
        return [self.table()] * bool(self.figures) + [self.quality_table()] * bool(self.perplexity)

    def table(self) -> Table:
        """The figures, for people."""
        table = Table("figure", "ours", "peer", "ratio", "of pairs", "unit", "peer's name", title=self._title())
        for key, figure in self.figures.items():
            low, high = figure.detail.get("ratio_low"), figure.detail.get("ratio_high")
            spread = f"{low:.2f} to {high:.2f}" if low is not None and high is not None else ""
            table.add_row(
                key,
                _short(figure.ours),
                _short(figure.peer),
                _short(figure.ratio),
                spread,
                figure.unit,
                figure.peer_name,
            )
        return table

    def quality_table(self) -> Table:
        """Perplexity, for people."""
        table = Table("text", "tokens", "reference", "ours", "ratio", "mean KL", "same choice", title="perplexity")
        for name, found in self.perplexity.items():
            figures = (f"{found.reference:.3f}", f"{found.ours:.3f}", f"{found.ratio:.4f}", f"{found.mean_kl:.2g}")
            table.add_row(name, str(found.tokens), *figures, f"{found.same_choice:.1%}")
        return table

    def _title(self) -> str:
        machine = self.machine
        bandwidth = machine.read_bandwidth / 1e9
        return f"{self.model} on {machine.processor}, {self.threads} threads, reads {bandwidth:.0f} GB/s"


def bandwidth_reached(hello: Hello, steps_per_second: float, kv_tokens: float, machine: Machine) -> dict[str, float]:
    """How much a decode step reads of memory, and which share of what the machine can read that is in a second.

    `kv_tokens` are those in the cache of all requests, on the average over the steps.
    """
    read = hello.weight_bytes + hello.kv_bytes * kv_tokens
    return {
        "bytes_per_step": read,
        "read_per_second": read * steps_per_second,
        "bandwidth_share": read * steps_per_second / machine.read_bandwidth,
    }


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
