"""One simulation, described whole: the same scenario and policy give the same outcome, to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.traffic.trace import Trace

EPOCH = 1_700_000_000.0
"""What the clock says when virtual time is 0."""

POD_LEAVES_S = 12.0
"""What a real pod takes to go, at least: 5 s in preStop, 5 in which endpoints forget it, and two to end, measured."""


class ScenarioError(ValueError):
    """It cannot be simulated; the message is one line."""


class Mode(StrEnum):
    """How closely steps are followed."""

    EXACT = "exact"
    """Every step, by the engine's own scheduler."""
    LEAP = "leap"
    """From event to event, by the same rules in closed form."""


class Routing(StrEnum):
    """Who gets a request."""

    LEAST = "least"
    """The ready replica with the fewest requests inside, as a gateway does."""
    RANDOM = "random"
    """Any ready replica, as a Service does."""
    ROUND_ROBIN = "round-robin"


class FaultKind(StrEnum):
    """What goes wrong."""

    HTTP_500 = "http-500"
    TIMEOUT = "timeout"
    NAN = "nan"
    """The report's numbers are NaN."""
    STALE = "stale"
    """The pod answers with the report it gave when the fault began."""
    COUNTER_RESET = "counter-reset"
    """Counters and sketches begin again at zero under the same boot."""
    POD_GONE = "pod-gone"
    """The pod is deleted by somebody; the Deployment makes another."""
    CRASH = "crash"
    """The process dies and its container starts again: what it held is lost."""
    NO_CAPACITY = "no-capacity"
    """New pods get no node while the fault lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From `at` for `seconds` of virtual time, for this share of the ready replicas (in order of age)."""

    kind: FaultKind
    at: float
    seconds: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """From a pod's creation to readiness: lognormal about the median, with this spread; 0 is no spread at all."""

    median_s: float
    sigma: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The highest p99 that is good enough, seconds; a request attains if it is within every one that is set."""

    ttft_s: float | None = 2.0
    tpot_s: float | None = 0.1
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Traffic, the engine, the cluster, the data's quality, and the seed of all that is random."""

    trace: Trace
    engine: EngineModel
    cold_start: ColdStart
    targets: Targets = Targets()
    first_replicas: int = 1
    """Ready at time 0."""
    minimum: int = 1
    maximum: int = 100
    """Bounds that every policy is told."""
    capacity: int | None = None
    """Replicas the cluster has room for; those beyond stay pending without a node. None: no bound."""
    drain_timeout_s: float = 300.0
    leaving_s: float = 0.0
    """The least that a ready pod stays, and is paid for, once it is told to go: it waits for endpoints to forget it."""
    scrape_interval_s: float = 5.0
    scrape_delay_s: float = 0.3
    """How old a report is when it is decided upon."""
    routing: Routing = Routing.LEAST
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    mode: Mode = Mode.LEAP
    settle_s: float = 600.0
    """How long after the last arrival requests may still finish; those that have not, have missed."""
