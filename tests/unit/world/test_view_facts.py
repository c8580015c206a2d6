"""What a pod's status and its own report say together."""

from __future__ import annotations

from typing import Any

import pytest
import recorded_pods as r
from answering_pods import AnsweringPods
from in_memory_api import InMemoryApi
from tidegate_operator.observed import Phase, ReplicaFacts, ServiceKey, UnreadableLoad
from tidegate_operator.world.calls import Kind
from tidegate_operator.world.scrape import Scraper
from tidegate_operator.world.view import View

LOAD = (
    '{"version": 1, "boot": "b1", "state": "STATE", "uptime_s": 9, "slots": 8, "running": 0, "waiting": 0,'
    ' "counters": {"received": 0, "finished": 0}}'
)


async def seen(status: dict[str, Any], state: str | None, *, then: int = 200) -> ReplicaFacts:
    """The facts about one pod that reported `state` (None: it never answered), and last answered with code `then`."""
    codes = [200, then]

    async def answer(_: str) -> bytes:
        code = codes.pop(0) if state else 503
        if code != 200:
            raise UnreadableLoad(f"/load answered HTTP {code}")
        return LOAD.replace("STATE", state or "").encode()

    now = [100.0]
    scraper = Scraper(AnsweringPods(answer))
    view = View(InMemoryApi(), scraper, clock=lambda: now[0])
    view.see(Kind.POD, r.pod(status), deleted=False)
    for _ in range(2):
        await view.ask(ServiceKey("ns", "web"))
    await scraper.close()
    (replica,) = view.facts(ServiceKey("ns", "web"), ()).replicas
    return replica


@pytest.mark.parametrize(
    ("status", "state", "phase"),
    [
        pytest.param(r.SERVING, "ready", Phase.READY, id="ready to both"),
        pytest.param(r.SERVING, "draining", Phase.DRAINING, id="drained by its admin port, still Ready to Kubernetes"),
        pytest.param(r.STARTING, "draining", Phase.DRAINING, id="drained by its admin port, no longer Ready"),
        pytest.param(r.STARTING, "starting", Phase.STARTING, id="starting to both"),
        pytest.param(r.STARTED_AGAIN, "draining", Phase.STARTING, id="ending once more for what it failed at before"),
        pytest.param(r.STARTING, None, Phase.STARTING, id="silent so far"),
    ],
)
async def test_phase(status: dict[str, Any], state: str | None, phase: Phase) -> None:
    assert (await seen(status, state)).phase is phase


async def test_a_silent_pods_old_word_that_it_drains_is_not_believed() -> None:
    replica = await seen(r.SERVING, "draining", then=500)
    assert replica.phase is Phase.READY
    assert replica.scrape_error == "/load answered HTTP 500"


async def test_a_failed_pod_is_not_asked() -> None:
    replica = await seen(r.BACKING_OFF, "ready")
    assert (replica.load, replica.scrape_error) == (None, None)
