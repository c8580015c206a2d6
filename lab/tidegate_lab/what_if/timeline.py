"""A simulation as rows over time, as `tidegate watch` looks: one where the wanted number changed, and now and then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate_lab.load.report import seconds
from tidegate_lab.simulate.outcome import Outcome

HEADER = "    time  replicas  ready  arrivals  queue  running  p99 TTFT  why"
_ROWS = 60
"""So many now and then, at most, beside those of changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What happened since the row before, and how the fleet was then."""

    at: float
    replicas: int
    ready: int
    arrivals_per_s: float
    waiting: int
    running: int
    ttft_p99_s: float | None
    """Of first tokens since the row before."""
    reason: str
    message: str
    changed: bool

    def __str__(self) -> str:
        whole = int(self.at)
        time = f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
        ttft = "-" if self.ttft_p99_s is None else seconds(self.ttft_p99_s)
        why = ": ".join(part for part in (self.reason, self.message if self.changed else "") if part)
        return (
            f"{time:>8}  {self.replicas:>8}  {self.ready:>5}  {self.arrivals_per_s:>6.2f}/s  {self.waiting:>5}  "
            f"{self.running:>7}  {ttft:>8}  {why}"
        ).rstrip()


def every_s(outcome: Outcome) -> float:
    """How far apart rows without a change are: a minute, or what makes a long trace fit a few screens."""
    return max(60.0, outcome.scenario.trace.seconds / _ROWS)


def rows(outcome: Outcome, apart_s: float) -> Iterator[Row]:
    """In order of time."""
    known = ~np.isnan(outcome.first_token_at)
    order = np.argsort(outcome.first_token_at[known])
    first_at, ttft = outcome.first_token_at[known][order], outcome.ttft[known][order]
    arrived, since, begun = 0, 0.0, 0
    for moment in outcome.moments:
        arrived += moment.arrived
        changed = moment.choice.replicas != moment.before
        if not changed and moment.at - since < apart_s - 1e-9:
            continue
        end = int(np.searchsorted(first_at, moment.at, side="right"))
        lately = ttft[begun:end]
        yield Row(
            at=moment.at,
            replicas=moment.choice.replicas,
            ready=moment.ready,
            arrivals_per_s=arrived / (moment.at - since),
            waiting=moment.waiting,
            running=moment.running,
            ttft_p99_s=float(np.quantile(lately, 0.99, method="inverted_cdf")) if len(lately) else None,
            reason=moment.choice.reason,
            message=moment.choice.message,
            changed=changed,
        )
        arrived, since, begun = 0, moment.at, end
