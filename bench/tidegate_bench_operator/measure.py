"""One point: a cluster of so many replicas, watched for a while."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench_operator.histogram import Metrics, buckets_between, quantile
from tidegate_bench_operator.processes import TICKS_PER_S, NotMeasured, Operator, StandIn

INTERVAL = ("tidegate_operator_scrape_interval_seconds", ())
DELAY = "tidegate_operator_decision_delay_seconds"
SETTLE_S = 240.0
"""At most, from the start until everything was created, read, and the interval is back at what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured at one point; seconds, shares of a core, MiB."""

    replicas: int
    services: int
    interval_asked: float
    interval: float
    """the operator's own word, at the end"""
    gap_p1: float
    gap_p50: float
    gap_p99: float
    gap_max: float
    """between two reads of one pod, as the pods saw it"""
    delay_p50: float | None
    delay_p99: float | None
    """from when a service's pods were due to be read until its decision was applied"""
    decisions: int
    reads: int
    reads_failed: int
    cpu_share: float
    """of one core, the operator's process"""
    core_taken_by_others: float
    """share of the operator's core that other processes had meanwhile"""
    rss_mib: float
    connections: int
    """new ones while measured: 0 where each pod's is kept"""
    status_writes: int
    body_bytes: float
    start_s: float
    """until every pod was there and the interval was what was asked, or SETTLE_S"""

    @property
    def holds(self) -> bool:
        """Whether the interval is what was asked and the p99 of the delay is under a second."""
        asked = self.interval_asked * 1.05
        return self.interval <= asked and self.gap_p50 <= asked and self.delay_p99 is not None and self.delay_p99 < 1.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def core_busy_s(core: int) -> float:
    """Seconds that anybody has taken of this core."""
    line = next(x for x in Path("/proc/stat").read_text().splitlines() if x.startswith(f"cpu{core} "))
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(x) for x in line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def settle(stand_in: StandIn, operator: Operator, replicas: int, interval: float) -> float:
    """Wait until all is there and read at the interval asked; returns the seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_S:
        time.sleep(interval)
        seen, metrics = stand_in.told(), operator.metrics()
        calm = metrics.get(INTERVAL, 0.0) <= interval * 1.05
        if seen["pods"] >= replicas and seen["answers"] >= 0.9 * replicas and calm:
            break
    if not stand_in.told()["pods"]:
        raise NotMeasured(f"the operator created no Deployment; its log: {operator.log}")
    took = time.monotonic() - began
    time.sleep(interval)
    return took


def watch(
    stand_in: StandIn, operator: Operator, core: int, size: tuple[int, int], interval: float, seconds: float
) -> Row:
    """Settle, then measure for `seconds`."""
    replicas, services = size
    start_s = settle(stand_in, operator, replicas, interval)
    stand_in.told()
    before, cpu, busy, began = operator.metrics(), operator.cpu_s(), core_busy_s(core), time.monotonic()
    time.sleep(seconds)
    after, seen, passed = operator.metrics(), stand_in.told(), time.monotonic() - began
    cpu, busy = operator.cpu_s() - cpu, core_busy_s(core) - busy
    delays = buckets_between(before, after, DELAY)
    return Row(
        replicas=replicas,
        services=services,
        interval_asked=interval,
        interval=after[INTERVAL],
        gap_p1=seen["gap_p1"],
        gap_p50=seen["gap_p50"],
        gap_p99=seen["gap_p99"],
        gap_max=seen["gap_max"],
        delay_p50=quantile(delays, 0.5),
        delay_p99=quantile(delays, 0.99),
        decisions=int(delays[-1][1]),
        reads=int(_grown(before, after, "tidegate_operator_scrapes_total", "ok")),
        reads_failed=int(_grown(before, after, "tidegate_operator_scrapes_total", "failed")),
        cpu_share=cpu / passed,
        core_taken_by_others=max(0.0, busy - cpu) / passed,
        rss_mib=operator.rss_mib(),
        connections=seen["connections"],
        status_writes=seen["calls"].get("PATCH inferenceservices/status", 0),
        body_bytes=seen["body_bytes"],
        start_s=start_s,
    )


def _grown(before: Metrics, after: Metrics, name: str, outcome: str) -> float:
    key = (name, (("outcome", outcome),))
    return after.get(key, 0.0) - before.get(key, 0.0)


def flags(size: tuple[int, int], silent: int, churn: float) -> Sequence[str]:
    """The stand-in's command line."""
    replicas, services = size
    return [
        f"--replicas={replicas}",
        f"--services={services}",
        f"--silent={silent}",
        f"--churn={churn}",
        "--seed=1",
    ]
