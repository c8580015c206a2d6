"""What is remembered between two decisions: a little for ever (kept in the status), a minute of traffic in the process.

Losing the second part costs no more than one hold of the scale-down window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate_operator.decide.replica_model import Equipment, RequestSize
from tidegate_operator.decide.scaling_history import History, Span
from tidegate_operator.observed import LoadReport, Sketch

COLD_START_PRIOR_S = 30.0
COLD_STARTS_KEPT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The part that goes to the status; a few hundred bytes, whatever the number of replicas."""

    cold_starts_s: tuple[float, ...] = ()
    """The newest, oldest first: from having a node to the first readiness."""
    capacity: float | None = None
    """Tokens (prompt and generated) per second that a replica computes while its slots are full."""
    tokens_per_request: float | None = None
    equipment: Equipment | None = None
    """What replicas said last; None: they publish no step model."""
    size: RequestSize | None = None
    """None: too few requests were seen."""
    efficiency: float = 1.0
    """Part of what the model promises that replicas were seen to carry."""
    hold_s: float = 0.0
    """How far back arrivals are replayed, where peaks were seen to come again after so long."""
    safe_utilisation: float | None = None
    """Share of the capacity that turned out to be too much, less a margin: the queue or a p99 was over its target."""
    safe_utilisation_at: float | None = None
    """When that was learned; it is forgotten after an hour."""
    newest_ready_at: float = 0.0
    """When the newest replica became ready, also where it is gone by now."""
    last_up_at: float | None = None
    last_change_at: float | None = None
    p99_steps: int = 0
    """Steps taken for a p99 in a row without its share over target getting better."""
    p99_share: float | None = None
    """The share over target that the last such step was to mend."""

    @property
    def cold_start_s(self) -> float:
        """p90 of the recent ones, seconds; a prior before the first."""
        ordered = sorted(self.cold_starts_s)
        return ordered[int(0.9 * (len(ordered) - 1) + 0.5)] if ordered else COLD_START_PRIOR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last report of one pod, and when it was made."""

    uid: str
    load: LoadReport
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Requests counted by how long they took, seconds."""

    ttft: Sketch = field(default_factory=Sketch)
    tpot: Sketch = field(default_factory=Sketch)
    e2e: Sketch = field(default_factory=Sketch)

    @classmethod
    def merged(cls, parts: tuple[Latencies, ...]) -> Latencies:
        return cls(
            ttft=Sketch.merged(part.ttft for part in parts),
            tpot=Sketch.merged(part.tpot for part in parts),
            e2e=Sketch.merged(part.e2e for part in parts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What all pods did between two looks, summed; pods that are gone since leave their past here and nothing else."""

    at: float
    seconds: float
    arrived: float = 0.0
    """Requests, rejected ones too. A report that covers more than the window counts only its share."""
    finished: float = 0.0
    tokens: float = 0.0
    running_grown: int = 0
    waiting_grown: int = 0
    prompt_tokens: float = 0.0
    """Those computed."""
    kv_tokens: float = 0.0
    """Held in ready pods at this look."""
    running: float = 0.0
    """In ready pods at this look."""
    occupied: float = 0.0
    spans: tuple[Span, ...] = ()
    """By pod: arrivals, and the time they were counted over."""
    inside: float = 0.0
    """Requests running or waiting in ready pods at this look."""
    waiting: int = 0
    """Requests waiting in ready pods that take steps and carry no backlog from before the newest replica."""
    waiting_everywhere: int = 0
    """Requests waiting in ready pods."""
    unburdened: int = 0
    """Those pods that carry no such backlog."""
    queueing: int = 0
    """Those of them in which more waits than is allowed."""
    ready: int = 0
    full_seconds: float = 0.0
    """Replica-seconds in which all slots were taken, or requests had to wait."""
    full_tokens: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    fresh: Latencies = field(default_factory=Latencies)
    """Of requests that arrived after the newest replica became ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What the mean request is computed from; older looks count less (ten minutes: answers may take some)."""

    prompt_tokens: float = 0.0
    started: float = 0.0
    output_tokens: float = 0.0
    ended: float = 0.0
    """What runs now has cost tokens too and ended nothing; on average it is half done."""
    kv_token_seconds: float = 0.0
    running_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A number of replicas at a time: one that would have held, or a change."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part that lives in the process, bounded in time by the longest window asked for."""

    since: float | None = None
    """The first look of this process."""
    seen: tuple[Seen, ...] = ()
    starting: frozenset[str] = frozenset()
    """Pods seen before they were ever ready: their readiness will teach a cold start."""
    burdened: frozenset[str] = frozenset()
    """Pods that had more waiting than allowed when the newest replica became ready, and have not cleared it since.
    What queues there does not move, so it says nothing about how many replicas are right now."""
    active_at: float | None = None
    """The last look that saw a request, or replicas of which none was ready: what idleness is counted from."""
    ticks: tuple[Tick, ...] = ()
    missed_since: float | None = None
    """Since when a target has been missed at every look; None: the last look found none missed."""
    held: int = 0
    """Requests at the gateway at the last look."""
    history: History = field(default_factory=History)
    sums: Sums = field(default_factory=Sums)
    peaks: tuple[Moment, ...] = ()
    """Replicas that were needed; only those no later look has surpassed."""
    holds: tuple[Moment, ...] = ()
    """Replicas that were predicted to hold the targets; only those no later look has surpassed."""
    wishes: tuple[Moment, ...] = ()
    """Replicas asked for before limits; only those no later look has undercut."""
    changes: tuple[Moment, ...] = ()
    """Changes made: `replicas` is the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Both parts."""

    learned: Learned = field(default_factory=Learned)
    window: Window = field(default_factory=Window)
