"""A replay and its simulation, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tidegate_lab.real_bench.bed import Replay
from tidegate_lab.real_bench.pods import Life, Lives
from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.fixed import Served
from tidegate_lab.simulate.ours import Ours
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import POD_LEAVES_S, ColdStart, Routing, Scenario, Targets
from tidegate_lab.traffic.trace import Trace
from tidegate_lab.what_if.service_file import Service

SCRAPE_S = 2.0
"""The operator's default, which the chart installs."""
SEEDS = 10
"""Simulations: which replica a Service picks, and how long each pod takes to start, are chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What came of the traffic, in one of the two worlds. Latencies in seconds, of completed requests."""

    attainment: float
    replica_hours: float
    most_replicas: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trace. Attainment's difference is in points (hundredths), that of replica-hours a share of the real ones."""

    trace: str
    requests: int
    failed: int
    real: Side
    simulated: Side
    """Means over the seeds."""
    least: Side
    most: Side
    """Each figure's least and most over the seeds."""
    attainment_points: float
    replica_hours_off: float
    late_max_s: float
    """The client's worst delay."""
    load_average: float
    """Of the machine, over the last minute of the replay."""
    stolen: float
    """Share of the processors' time that the host gave to other machines."""
    pods: tuple[Life, ...]
    """The real ones; seconds of the replay."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def real_side(replay: Replay, lives: Lives, trace: Trace, targets: Targets) -> Side:
    """Of a replay; a request that failed has missed."""
    served, begin = replay.served, replay.began_at
    good = sum(_attained(served, targets).tolist())
    end = begin + trace.seconds
    return Side(
        attainment=good / replay.report.sent,
        replica_hours=lives.replica_hours(begin, end),
        most_replicas=lives.most(begin, end),
        **_quantiles(served),
    )


def simulated_sides(
    trace: Trace, service: Service, engine: EngineModel, cold_start: ColdStart, seeds: int = SEEDS
) -> list[Side]:
    """The same traffic, once for each seed."""
    policy = service.policy
    scenario = Scenario(
        trace=trace,
        engine=service.engine(engine),
        cold_start=cold_start,
        targets=service.targets,
        first_replicas=1,
        minimum=policy.minimum,
        maximum=policy.maximum,
        drain_timeout_s=service.spec.drain.timeout,
        leaving_s=POD_LEAVES_S,
        scrape_interval_s=SCRAPE_S,
        routing=Routing.RANDOM,
    )
    sides = []
    for seed in range(seeds):
        outcome = simulate(replace(scenario, seed=seed), Ours(policy=policy, interval_s=SCRAPE_S))
        done = ~np.isnan(outcome.finished_at)
        part = Trace(trace.name, trace.at[done], trace.prompt[done], trace.output[done], trace.seconds)
        sides.append(
            Side(
                attainment=outcome.attainment,
                replica_hours=outcome.replica_hours,
                most_replicas=max(m.ready + m.starting for m in outcome.moments),
                **_quantiles(Served(part, outcome.first_token_at[done], outcome.finished_at[done])),
            )
        )
    return sides


def over(sides: Sequence[Side], how: Any) -> Side:
    """Each figure over the seeds: `how` is np.mean, np.min or np.max."""
    columns = [asdict(side) for side in sides]
    return Side(**{name: float(how([column[name] for column in columns])) for name in columns[0]})


def _attained(served: Served, targets: Targets) -> Any:
    good = np.ones(len(served.trace), bool)
    for times, limit in ((served.ttft, targets.ttft_s), (served.tpot, targets.tpot_s), (served.e2e, targets.e2e_s)):
        if limit is not None:
            good &= times <= limit
    return good


def _quantiles(served: Served) -> dict[str, float]:
    ttft, tpot = served.ttft, served.tpot[served.trace.output > 1]
    return {
        f"{name}_p{percent}": float(np.percentile(times, percent, method="inverted_cdf"))
        for name, times in (("ttft", ttft), ("tpot", tpot))
        for percent in (50, 99)
    }
