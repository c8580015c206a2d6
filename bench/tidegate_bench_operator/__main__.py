"""`make bench-operator`: sweep the number of replicas upward, or watch one number for long; writes operator.json."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidegate_bench_operator import processes
from tidegate_bench_operator.measure import Row, flags, free_port, settle, watch

SIZES = "500/125,1000/250,2000/500,3000/500,4000/500,5000/500,6000/600,8000/800,10000/1000"


def main() -> int:
    """Flags say which points and for how long."""
    asked = _parser().parse_args()
    sizes = [_size(text) for text in asked.sizes.split(",")]
    report: dict[str, Any] = {"machine": _machine(), "interval": asked.interval, "seconds": asked.seconds}
    out = Path(asked.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        if asked.minutes:
            report["memory"] = _memory(asked, sizes[0])
        else:
            report["rows"] = _sweep(asked, sizes, out, report)
    except processes.NotMeasured as error:
        print(f"bench-operator: {error}", file=sys.stderr)
        return 1
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {out}")
    return 0


def _sweep(
    asked: argparse.Namespace, sizes: list[tuple[int, int]], out: Path, report: dict[str, Any]
) -> list[dict[str, Any]]:
    rows: list[Row] = []
    for size in sizes:
        with _both(asked, size) as (stand_in, operator):
            rows.append(watch(stand_in, operator, asked.cores[0], size, asked.interval, asked.seconds))
        _print(rows[-1])
        report["rows"] = [asdict(row) | {"holds": row.holds} for row in rows]
        out.write_text(json.dumps(report, indent=1) + "\n")
        if not rows[-1].holds and not asked.all:
            break
    most = max((row.replicas for row in rows if row.holds), default=0)
    report["most_replicas_held"] = most
    print(f"most replicas read every {asked.interval:g} s with a p99 of the delay under 1 s: {most}")
    return [asdict(row) | {"holds": row.holds} for row in rows]


def _memory(asked: argparse.Namespace, size: tuple[int, int]) -> dict[str, Any]:
    """Resident memory once a minute; flat is: the last third's highest is within a few MiB of the second third's."""
    samples = []
    with _both(asked, size) as (stand_in, operator):
        settle(stand_in, operator, size[0], asked.interval)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 60 * asked.minutes:
            samples.append({"s": round(passed), "rss_mib": operator.rss_mib(), "open_files": operator.open_files()})
            time.sleep(min(60.0, 60 * asked.minutes - passed))
        samples.append({"s": round(passed), "rss_mib": operator.rss_mib(), "open_files": operator.open_files()})
        cpu = operator.cpu_s()
    third = len(samples) // 3
    grown = max(s["rss_mib"] for s in samples[-third:]) - max(s["rss_mib"] for s in samples[third : 2 * third])
    print(f"{size[0]} replicas for {asked.minutes:g} min, {asked.churn:g} replaced a minute: {grown:+.1f} MiB")
    return {
        "replicas": size[0],
        "services": size[1],
        "churn_per_minute": asked.churn,
        "minutes": asked.minutes,
        "cpu_s": cpu,
        "grown_mib": grown,
        "samples": samples,
    }


@contextmanager
def _both(asked: argparse.Namespace, size: tuple[int, int]) -> Iterator[tuple[processes.StandIn, processes.Operator]]:
    """The stand-in and the operator, each on its core."""
    arguments = [f"--scrape-interval={asked.interval}", "--log-level=warning"]
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-operator") as folder,
        processes.stand_in(
            processes.Place(asked.cores[1], asked.nice), flags(size, asked.silent, asked.churn)
        ) as cluster,
        processes.operator(
            processes.Place(asked.cores[0], asked.nice), cluster.port, free_port(), Path(folder), arguments
        ) as operator,
    ):
        operator.wait(30)
        yield cluster, operator


def _print(row: Row) -> None:
    delays = " / ".join("-" if d is None else f"{1000 * d:.0f}" for d in (row.delay_p50, row.delay_p99))
    print(
        f"{row.replicas} replicas of {row.services} services: every {row.gap_p50:.2f} s (p99 {row.gap_p99:.2f}), "
        f"delay p50 / p99 {delays} ms, {row.cpu_share:.0%} of the core ({row.core_taken_by_others:.0%} others'), "
        f"{row.rss_mib:.0f} MiB: {'holds' if row.holds else 'does not hold'}",
        flush=True,
    )


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {"processor": names[0] if names else "unknown", "load_average": os.getloadavg()[0]}


def _size(text: str) -> tuple[int, int]:
    replicas, _, services = text.partition("/")
    return int(replicas), int(services)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench-operator")
    parser.add_argument("--sizes", default=SIZES, help="REPLICAS/SERVICES,... in the order measured")
    parser.add_argument("--all", action="store_true", help="go on after the first that does not hold")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two reads of a pod")
    parser.add_argument("--seconds", type=float, default=30.0, help="that each size is measured for")
    parser.add_argument("--minutes", type=float, default=0.0, help="watch the memory at the first size for so long")
    parser.add_argument("--churn", type=float, default=20.0, help="pods replaced a minute")
    parser.add_argument("--silent", type=int, default=0, help="pods that take a connection and never answer")
    parser.add_argument("--cores", type=_cores, default=(0, 1), help="OPERATOR,STAND-IN: numbers of the two cores")
    first = 0 if os.geteuid() else -15
    parser.add_argument("--nice", type=int, default=first, help="priority of both; as root, before everything else")
    parser.add_argument("--out", default="build/bench/operator.json")
    return parser


def _cores(text: str) -> tuple[int, int]:
    operator, _, stand_in = text.partition(",")
    return int(operator), int(stand_in)


if __name__ == "__main__":
    sys.exit(main())
