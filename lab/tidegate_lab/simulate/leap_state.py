"""What the leap engine keeps: a row for each request and replica, which compiled code reads and writes in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.scenario import ScenarioError
from tidegate_lab.traffic.trace import Trace

Rows = NDArray[Any]
Row = Any
"""One row of such a table: in compiled code its columns are attributes."""

REQUEST = np.dtype(
    [
        ("at", "f8"),  # seconds of arrival
        ("sent", "f8"),  # when a replica got it
        ("first", "f8"),  # first token
        ("finish", "f8"),
        ("last", "f8"),  # newest token
        ("prompt", "i4"),
        ("output", "i4"),
        ("tokens", "i4"),  # prompt and what was generated
        ("computed", "i4"),  # of those, in the cache
        ("most", "i4"),  # of the prompt, ever computed: what is below is recomputation
        ("next", "i4"),  # behind it in the queue, -1: nobody
    ],
    align=True,
)
"""64 bytes, one cache line."""

REPLICA = np.dtype(
    [
        ("open", "i8"),  # whether the row is in use
        ("ready", "i8"),  # whether it gets requests
        ("number", "i8"),
        ("routed", "i8"),  # turn of the newest request it was given
        ("running", "i8"),
        ("waiting", "i8"),  # these two as the scheduler sees them
        ("head", "i8"),
        ("tail", "i8"),
        ("free", "i8"),  # blocks
        ("unfirst", "i8"),  # requests without a first token
        ("flight", "i8"),  # the step that is under way: NONE, FULL or GLIDING
        ("quiet", "i8"),  # whether steps can be taken without looking at requests
        ("lag", "i8"),  # quiet steps that are not written into the requests yet
        ("left", "i8"),  # quiet steps until the first finish
        ("held", "i8"),  # tokens in the cache
        ("clock", "f8"),  # when the next step may begin
        ("ends", "f8"),  # when the one under way does
        ("stepped", "f8"),  # when the last one did, NaN: none yet
        ("received", "i8"),
        ("finished", "i8"),
        ("rejected", "i8"),
        ("prompt_tokens", "i8"),
        ("generated_tokens", "i8"),
        ("preemptions", "i8"),
        ("steps", "i8"),
    ],
    align=True,
)

TRAFFIC = np.dtype(
    [
        ("next", "i8"),  # the next request of the trace
        ("turn", "i8"),  # requests given to replicas so far
        ("head", "i8"),  # held, since no replica is ready
        ("tail", "i8"),
        ("held", "i8"),
        ("seed", "u8"),
        ("routing", "i8"),
        ("rows", "i8"),  # replicas' rows that were ever used
    ],
    align=True,
)

LOWEST = -691
"""The bin of 1e-6 s; what is no longer counts in column 0 of `bins`, as zero."""
WIDTH = 1300
"""Columns of `bins`: up to 190,000 s."""


class Rules(NamedTuple):
    """An engine model as plain numbers."""

    a: float
    b: float
    c: float
    slots: int
    budget: int
    block: int
    blocks: int
    most_queued: int
    """-1: no bound."""


def rules_of(engine: EngineModel) -> Rules:
    """Raises ScenarioError for what lets nothing run."""
    blocks = engine.kv_tokens // engine.block_size
    if min(engine.slots, engine.token_budget, engine.block_size, blocks) < 1:
        raise ScenarioError(
            f"engine {engine.name}: slots, token_budget, block_size and kv_tokens must let a request run"
        )
    step = engine.step
    most_queued = -1 if engine.most_queued is None else engine.most_queued
    return Rules(
        step.a, step.b, step.c, engine.slots, engine.token_budget, engine.block_size, blocks, most_queued
    )  # fmt: skip


class Tables(NamedTuple):
    """All of it; compiled code takes them together."""

    requests: Rows
    replicas: Rows
    running: NDArray[np.int32]
    """By replica: requests that run, in order of arrival. Those that wait all came later, and are a linked list."""
    due: NDArray[np.int64]
    """By replica, while it is quiet: requests that need a block in the first, second, ... step from `lag` 0 on."""
    bins: NDArray[np.int32]
    """By replica: TTFT, TPOT and end to end, counted as `observed_sketch` does."""
    traffic: Rows
    """One row."""


def tables_for(trace: Trace, rules: Rules, rows: int, seed: int, routing: int) -> Tables:
    """Nothing has arrived, and no replica is there."""
    requests = np.zeros(len(trace), REQUEST)
    requests["at"], requests["prompt"], requests["output"] = trace.at, trace.prompt, trace.output
    requests["tokens"], requests["next"] = trace.prompt, -1
    for column in ("sent", "first", "finish", "last"):
        requests[column] = np.nan
    traffic = np.zeros(1, TRAFFIC)
    traffic["seed"], traffic["routing"] = seed % 2**64, routing
    return Tables(
        requests,
        np.zeros(rows, REPLICA),
        np.zeros((rows, rules.slots), np.int32),
        np.zeros((rows, rules.block), np.int64),
        np.zeros((rows, 3, WIDTH), np.int32),
        traffic,
    )


def widened(tables: Tables) -> Tables:
    """Room for twice as many replicas."""
    replicas, running, due, bins = (np.concatenate((table, np.zeros_like(table))) for table in tables[1:5])
    return Tables(tables.requests, replicas, running, due, bins, tables.traffic)
