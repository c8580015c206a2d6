"""When a name is looked at again, by how the look ended; and what ends the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from answering_pods import broken
from in_memory_api import InMemoryApi
from prometheus_client.exposition import generate_latest
from tidegate_operator import loop
from tidegate_operator.errors import Gone, RetryLater, Stall, WaitFor
from tidegate_operator.observed import ServiceKey
from tidegate_operator.queue import Backlog, KeyedQueue
from tidegate_operator.world import telemetry
from tidegate_operator.world.api import NotFound
from tidegate_operator.world.calls import Kind
from tidegate_operator.world.scrape import Scraper
from tidegate_operator.world.view import View

WEB = ServiceKey("ns", "web")


class Look:
    """A reconcile that ends as told, and how the queue stands afterwards."""

    def __init__(self, ends: Exception | None) -> None:
        self.ends = ends
        self.done = asyncio.Event()
        self.backlog = Backlog(debounce=0, retry_base=8)
        self.now = 100.0
        self.queue = KeyedQueue(lambda: self.now, self.backlog)
        self.telemetry = telemetry.Telemetry(lambda: self.now)

    async def reconcile(self, key: ServiceKey) -> None:
        asyncio.get_running_loop().call_soon(self.done.set)
        if self.ends is not None:
            raise self.ends

    async def once(self) -> float | None:
        """Seconds until the next look; None: none is planned."""
        self.queue.add(WEB)
        worker = asyncio.create_task(loop.work(self.queue, self.reconcile, loop.UnderWay(), self.telemetry))
        async with asyncio.timeout(5):
            await self.done.wait()
            await asyncio.sleep(0)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        due = self.backlog.next(self.now)
        return None if due is None else due.wait


@pytest.mark.parametrize(
    ("ends", "again", "outcome"),
    [
        pytest.param(None, None, "ok", id="well: at the next event or tick"),
        pytest.param(WaitFor("R", "m"), 1, "wait", id="something is on its way: in a second"),
        pytest.param(RetryLater("R", "m"), 8, "retry", id="a busy server: after the backoff"),
        pytest.param(Stall("R", "m"), 60, "stall", id="a person has to act: in a minute"),
        pytest.param(Gone("R", "m"), None, "gone", id="nothing is left to do: never"),
    ],
)
async def test_when_it_looks_again(ends: Exception | None, again: float | None, outcome: str) -> None:
    look = Look(ends)
    assert await look.once() == again
    counted = f'tidegate_operator_reconcile_seconds_count{{outcome="{outcome}"}} 1.0'
    assert counted in generate_latest(look.telemetry.registry).decode()


async def test_a_defect_ends_the_worker_instead_of_being_swallowed() -> None:
    look = Look(None)

    async def defect(_: ServiceKey) -> None:
        raise ZeroDivisionError

    look.queue.add(WEB)
    with pytest.raises(ZeroDivisionError):
        await loop.work(look.queue, defect, loop.UnderWay(), look.telemetry)


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until it holds, five seconds at most."""
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to hold within five seconds")


def view_of(api: InMemoryApi) -> View:
    return View(api, Scraper(broken()))


async def test_it_waits_for_the_crd_and_then_knows_everything(caplog: pytest.LogCaptureFixture) -> None:
    api = InMemoryApi()
    api.put(Kind.INFERENCE_SERVICE, {"metadata": {"name": "web", "namespace": "ns"}, "spec": {}})
    listing = Kind.INFERENCE_SERVICE.call("list")
    api.fail_with[listing] = NotFound("the server could not find the requested resource")
    first = asyncio.create_task(loop.first_list(view_of(api), wait=0.01))
    async with asyncio.timeout(5):
        await until(lambda: "is not installed yet" in caplog.text)
        del api.fail_with[listing]
        assert await first == {WEB}


async def test_a_refresh_that_fails_is_tried_again_later() -> None:
    api = InMemoryApi()
    api.put(Kind.INFERENCE_SERVICE, {"metadata": {"name": "web", "namespace": "ns"}, "spec": {}})
    pods = Kind.POD.call("list")
    api.fail_with[pods] = RetryLater("ApiUnreachable", "no route")
    view, queue = view_of(api), KeyedQueue(asyncio.get_running_loop().time)
    task = asyncio.create_task(loop.refresh(view, queue, every=0.01))
    async with asyncio.timeout(5):
        await until(lambda: pods in api.calls)
        api.fail_with.clear()
        seen = len(api.calls)
        await until(lambda: len(api.calls) >= seen + 8)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_health_fails_once_the_scaling_loop_is_silent() -> None:
    now = [0.0]
    signs = telemetry.Telemetry(lambda: now[0])
    runner = await telemetry.serve(signs, 0, most_silent=50)
    port = next(address[1] for address in runner.addresses if address[0] == "0.0.0.0")  # one family of two
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        now[0] = 1000.0  # waiting for the lease: no tick is expected
        assert (await http.get("/healthz")).status_code == 200
        signs.tick()
        now[0] += 51
        assert (await http.get("/healthz")).status_code == 503
        signs.tick()
        assert (await http.get("/healthz")).status_code == 200
        assert "tidegate_operator_leader 0.0" in (await http.get("/metrics")).text
    await runner.cleanup()


async def test_a_process_that_could_not_do_the_work_is_not_ready_and_does_not_ask_for_the_lease() -> None:
    api = InMemoryApi()
    signs = telemetry.Telemetry(lambda: 0.0)
    runner = await telemetry.serve(signs, 0, most_silent=50)
    port = next(address[1] for address in runner.addresses if address[0] == "0.0.0.0")  # one family of two
    lease = [RetryLater("ApiUnreachable", "get lease tidegate-system/tidegate-operator: busy")]

    async def probe_lease() -> None:
        if lease:
            raise lease[0]

    services, pods = Kind.INFERENCE_SERVICE.call("list"), Kind.POD.call("list")
    api.fail_with = {services: NotFound("not found"), pods: Stall("Forbidden", "pods is forbidden")}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http, asyncio.timeout(20):
        assert "has just started" in (await http.get("/readyz")).text
        able = asyncio.create_task(loop.able((view_of(api).probe, probe_lease), signs.lack, wait=0.01))
        for words, mend in (
            (
                "the CRD inferenceservices.tidegate.dev is not installed yet; apply it",
                lambda: api.fail_with.pop(services),
            ),
            ("pods is forbidden; I try again", lambda: api.fail_with.pop(pods)),
            ("get lease tidegate-system/tidegate-operator: busy", lease.clear),
        ):
            await until(lambda words=words: words in (signs.lacks or ""))  # type: ignore[misc]
            answer = await http.get("/readyz")
            assert (answer.status_code, words in answer.text) == (503, True)
            assert (await http.get("/healthz")).status_code == 200, "a restart would not mend it"
            assert not able.done()
            mend()
        await able
        assert (await http.get("/readyz")).status_code == 200, "it stands by, and never has to lead to be ready"
    await runner.cleanup()


async def test_one_whose_scaling_loop_is_silent_is_not_ready_either() -> None:
    now = [0.0]
    signs = telemetry.Telemetry(lambda: now[0])
    signs.lack(None)
    signs.tick()
    runner = await telemetry.serve(signs, 0, most_silent=50)
    port = next(address[1] for address in runner.addresses if address[0] == "0.0.0.0")  # one family of two
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        assert (await http.get("/readyz")).status_code == 200
        now[0] = 51
        assert (await http.get("/readyz")).status_code == 503
    await runner.cleanup()


@pytest.mark.parametrize(
    ("now_it_says", "words"),
    [
        pytest.param(
            NotFound("the server could not find the requested resource"),
            ["the CRD inferenceservices.tidegate.dev was removed", "every InferenceService", "pods are being deleted",
             "apply the CRD again", "then your InferenceServices", "code 4"],
            id="the CRD is gone: what that did, and how to go on",
        ),
        pytest.param(
            Stall("Forbidden", "pods is forbidden"), ["watching ended: boom; and now pods is forbidden"],
            id="a right was taken away",
        ),
        pytest.param(None, ["watching ended: boom; ending with code 4, to begin again"], id="it is well again"),
    ],
)  # fmt: skip
async def test_what_is_said_of_a_watch_that_ended(now_it_says: Exception | None, words: list[str]) -> None:
    api = InMemoryApi()
    if now_it_says is not None:
        api.fail_with[Kind.INFERENCE_SERVICE.call("list")] = now_it_says
    said = await loop.why_unwatched(view_of(api), RuntimeError("boom"))
    assert "\n" not in said
    assert [word for word in words if word not in said] == []
