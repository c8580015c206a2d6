"""Figures as lines for people."""

from __future__ import annotations

from tidegate_lab.load.report import seconds
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.what_if.figures import Figures, Latency
from tidegate_lab.what_if.service_file import Service


def told(service: Service, outcome: Outcome, figures: Figures) -> list[str]:
    """What came of it, from what matters most to what matters least."""
    trace = outcome.scenario.trace
    lines = [
        f"{service.name}: {outcome.policy} over {trace.name}, {figures.requests} requests in {_hours(trace.seconds)}",
        f"  attainment       {figures.attainment:.2%} of requests within every target",
    ]
    for name, latency in (("TTFT", figures.ttft), ("TPOT", figures.tpot), ("end to end", figures.e2e)):
        lines.append(f"  {name:<16} {_latency(latency)}")
    lines += [
        f"  replica-hours    {figures.replica_hours:.2f} (mean {figures.mean_replicas:.2f}, "
        f"most ready {figures.most_replicas}){_cost(service, figures)}",
        f"  changes          {figures.changes_per_hour:.1f} an hour, of direction {figures.reversals_per_hour:.1f}",
    ]
    misses = {"refused": figures.refused, "lost with their pod": figures.lost, "unfinished": figures.unfinished}
    if any(misses.values()):
        lines.append("  not answered     " + ", ".join(f"{n} {what}" for what, n in misses.items() if n))
    if figures.preemptions:
        lines.append(f"  preemptions      {figures.preemptions}")
    return lines


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    quantiles = f"p50 {seconds(latency.p50)}, p95 {seconds(latency.p95)}, p99 {seconds(latency.p99)}"
    if latency.target is None:
        return quantiles
    return f"{quantiles}; {latency.within:.2%} within {seconds(latency.target)}"


def _hours(length: float) -> str:
    return f"{length / 3600:.3g} h" if length >= 3600 else f"{length / 60:.3g} min"


def _cost(service: Service, figures: Figures) -> str:
    if service.price is None:
        return ""
    cost, millions = figures.replica_hours * service.price, figures.generated_tokens / 1e6
    return f", cost {cost:.2f}" + (f", {cost / millions:.3g} per million tokens generated" if millions else "")
