"""The traffic of the benchmark: which traces, on which engine, how many times their rate, and on which side they are.

Factors are such that the oracle needs about 2 to 20 replicas. Half of the traces tune, half score; each half has
recorded and made ones. `check` is neither: traffic that one line of the answers is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from tidegate_lab.simulate.engine import RTX4090_LLAMA_8B, RTXPRO6000_LLAMA_8B, EngineModel, StepModel
from tidegate_lab.simulate.scenario import Targets
from tidegate_lab.traffic.named import named
from tidegate_lab.traffic.shape import at_times_the_rate
from tidegate_lab.traffic.synthetic import Lengths, Stage, constant, on_off, slow_day, stages
from tidegate_lab.traffic.trace import Trace

COLD_STARTS_S = (30.0, 90.0, 180.0)
TARGETS = Targets(ttft_s=2.0, tpot_s=0.1)


class Split(StrEnum):
    """What a trace is for."""

    TUNE = "tune"
    SCORE = "score"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One trace on one engine."""

    name: str
    split: Split
    what: str
    """For people: where it is from and how it was scaled."""
    make: Callable[[], Trace]
    engine: EngineModel = RTX4090_LLAMA_8B
    targets: Targets = TARGETS
    cold_starts_s: tuple[float, ...] = COLD_STARTS_S
    is_day: bool = False
    """A run of it takes about ten times as long as one of an hour."""
    borders: tuple[float, ...] = ()
    """Seconds at which the rate jumps; nobody can know the rate after one before it."""
    minimum: int = 1
    maximum: int | None = None
    """None: twice the oracle's peak, as a user would leave room."""
    first: int | None = None
    """Replicas at the beginning; None: the oracle's."""


def _of(name: str, factor: float) -> Callable[[], Trace]:
    return lambda: at_times_the_rate(named(name), factor, seed=7)


def _talk() -> Lengths:
    return Lengths.of(named("azure-conv"))


LLMD_ENGINE = EngineModel(
    name="qwen3-32b-two-h100",
    step=StepModel(a=12.5e-3, b=0.060e-3, c=4.9e-8),
    kv_tokens=310_000,
    token_budget=8192,
)
"""Not measured by us. Two H100: 64 GB of weights at 85 % of 6.7 TB/s and the all-reduces are 12.5 ms, 262 kB of KV a
token at 80 % are 4.9e-8 s, 65 GFLOP a token at 55 % of 2 PFLOP/s are 0.06 ms, and 81 GB are left for KV. A full replica
then bears 1.4 requests per second of 4,000 in and 1,000 out; they found 1.4 to 1.5."""

ON_OFF = (Stage(45, 300), Stage(5, 600))
CASES = (
    Case(
        name="azure-conv",
        split=Split.TUNE,
        what="Azure conversations, 58 min, 4 times the rate (22 requests/s)",
        make=_of("azure-conv", 4),
    ),
    Case(
        name="aibrix-up-down",
        split=Split.TUNE,
        what="AIBrix up and down, 8 min, 20 times the rate (88 requests/s)",
        make=_of("aibrix-up-down", 20),
    ),
    Case(
        name="step-up-10x",
        split=Split.TUNE,
        what="5 requests/s for 15 min, then 50 for 30 min; lengths of Azure conversations",
        make=lambda: stages("step-up-10x", [Stage(5, 900), Stage(50, 1800)], _talk(), seed=2),
        borders=(900.0,),
    ),
    Case(
        name="on-off",
        split=Split.TUNE,
        what="5 requests/s for 10 min, 45 for 5 min, six times; lengths of Azure conversations",
        make=lambda: on_off("on-off", *ON_OFF, 6, _talk(), seed=4),
        borders=tuple(900.0 * i + edge for i in range(6) for edge in (0.0, 600.0))[1:],
    ),
    Case(
        name="azure-code",
        split=Split.SCORE,
        what="Azure code, 57 min, twice the rate (5 requests/s, very bursty)",
        make=_of("azure-code", 2),
        engine=RTXPRO6000_LLAMA_8B,
    ),
    Case(
        name="servegen-24h",
        is_day=True,
        split=Split.SCORE,
        what="ServeGen deepseek-r1, 24 h, 1.5 times the rate (6 requests/s)",
        make=_of("servegen-24h", 1.5),
        engine=RTXPRO6000_LLAMA_8B,
    ),
    Case(
        name="step-down-10x",
        split=Split.SCORE,
        what="50 requests/s for 15 min, then 5 for 30 min; lengths of Azure conversations",
        make=lambda: stages("step-down-10x", [Stage(50, 900), Stage(5, 1800)], _talk(), seed=3),
        borders=(900.0,),
    ),
    Case(
        name="slow-day",
        is_day=True,
        split=Split.SCORE,
        what="one wave of 24 h between 0.6 and 6 requests/s; lengths of ServeGen",
        make=lambda: slow_day("slow-day", 0.6, 6, Lengths.of(named("servegen-24h")), seed=5),
        engine=RTXPRO6000_LLAMA_8B,
    ),
    Case(
        name="constant",
        split=Split.CHECK,
        what="20 requests/s for an hour; lengths of Azure conversations",
        make=lambda: constant("constant", 20, 3600, _talk(), seed=1),
        cold_starts_s=(90.0,),
        first=1,
    ),
    Case(
        name="llmd-stages",
        split=Split.CHECK,
        what="llm-d's scenario: 2, 4, 6, 8, 10, 4, 1 requests/s in turn, 4,000 in and 1,000 out",
        make=lambda: named("llmd-stages"),
        engine=LLMD_ENGINE,
        targets=Targets(ttft_s=3.0, tpot_s=0.1),
        cold_starts_s=(100.0,),
        minimum=3,
        maximum=8,
        first=3,
    ),
)


def case(name: str) -> Case:
    """By its name; raises ValueError with the names there are."""
    for each in CASES:
        if each.name == name:
            return each
    raise ValueError(f"trace {name!r}: is not in the benchmark; its traces are {', '.join(c.name for c in CASES)}")


@cache
def traffic(name: str) -> Trace:
    """The trace of a case, made once in a process."""
    return case(name).make()
