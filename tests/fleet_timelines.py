"""Short ways to say what a fleet shows over time, for tests of rival laws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from load_reports import NOW, pending, ready, report
from tidegate_lab.simulate.engine import RTX4090_LLAMA_8B
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Policy
from tidegate_lab.simulate.scenario import Targets
from tidegate_operator.observed import DeploymentFacts, ReplicaFacts, ServiceObserved
from tidegate_operator.observed_load import Counters, KvBlocks, Sketches
from tidegate_operator.observed_sketch import Sketch

TOLD = Told(minimum=1, maximum=20, targets=Targets(ttft_s=2.0, tpot_s=0.1), engine=RTX4090_LLAMA_8B)
BLOCKS = RTX4090_LLAMA_8B.kv_tokens // RTX4090_LLAMA_8B.block_size


def busy(
    running: int = 0, waiting: int = 0, *, kv: float = 0.0, ttft: Sequence[float] = (), **counters: int
) -> dict[str, Any]:
    """What one pod says: `kv` is the share of its cache in use, `ttft` the times of all it ever finished."""
    return {
        "running": running,
        "waiting": waiting,
        "kv_blocks": KvBlocks(total=BLOCKS, used=round(kv * BLOCKS)),
        "sketches": Sketches(ttft=Sketch.of(ttft)),
        "counters": Counters(**counters),
    }


def fleet(pods: Iterable[dict[str, Any] | str], wanted: int | None = None) -> ServiceObserved:
    """`pods` are what `busy` says, or `starting` or `silent`."""
    replicas: list[ReplicaFacts] = []
    for i, pod in enumerate(pods):
        if pod == "starting":
            replicas.append(pending(f"p{i}"))
        elif pod == "silent":
            replicas.append(replace(ready(f"p{i}", report(boot=f"b{i}")), scrape_error="timeout"))
        else:
            assert isinstance(pod, dict)
            replicas.append(ready(f"p{i}", report(boot=f"b{i}", **pod)))
    count = len(replicas) if wanted is None else wanted
    return ServiceObserved(
        deployment=DeploymentFacts(generation=1, observed_generation=1, replicas=count, current=len(replicas)),
        replicas=tuple(replicas),
    )


def shown(policy: Policy, looks: Iterable[ServiceObserved]) -> list[int]:
    """What it chooses, one look after another at its own interval."""
    return [policy.choose(look, NOW + i * policy.interval_s).replicas for i, look in enumerate(looks)]
