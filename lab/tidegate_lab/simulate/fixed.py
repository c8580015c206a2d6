"""A trace served by a number of replicas that never changes and that were ready from the start."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.scenario import ColdStart, Scenario
from tidegate_lab.simulate.servers import Times
from tidegate_lab.traffic.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What came of each request, in the trace's order; NaN where it was refused. Seconds."""

    trace: Trace
    first_token_at: Times
    finished_at: Times
    preemptions: int = 0

    @property
    def ttft(self) -> Times:
        return np.asarray(self.first_token_at - self.trace.at)

    @property
    def e2e(self) -> Times:
        return np.asarray(self.finished_at - self.trace.at)

    @property
    def tpot(self) -> Times:
        """Seconds per token after the first; 0 for answers of one token."""
        return np.asarray((self.finished_at - self.first_token_at) / np.maximum(self.trace.output - 1, 1))


def serve_with(replicas: int, trace: Trace, engine: EngineModel) -> Served:
    """Serve all of it, each request by the replica with the fewest inside, until the last has ended."""
    if replicas < 1:
        raise ValueError(f"replicas {replicas}: give 1 or more")
    # Here, since numba takes a second to import, which no other verb of `tidegate` need wait for.
    from tidegate_lab.simulate.leap import LeapServers

    servers = LeapServers(Scenario(trace=trace, engine=engine, cold_start=ColdStart(median_s=0.0)))
    for number in range(replicas):
        servers.open(number)
    servers.serve(inf)
    first, finished = servers.times()
    return Served(trace, first, finished, sum(servers.counts(number).preemptions for number in range(replicas)))
