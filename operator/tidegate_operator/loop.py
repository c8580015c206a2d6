"""What runs while this process leads: workers that serve the queue, one scaling loop for all services, a refresh."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tidegate_operator.errors import Gone, RetryLater, Stall, WaitFor, WorldError
from tidegate_operator.observed import ServiceKey
from tidegate_operator.pace import Pace, spread
from tidegate_operator.queue import KeyedQueue
from tidegate_operator.world.api import NotFound
from tidegate_operator.world.calls import Kind
from tidegate_operator.world.telemetry import Telemetry
from tidegate_operator.world.view import View

WORKERS = 8
MOST_UNDER_WAY = 32
"""Services read or decided at once: some 3 ms of work each, so that a decision is a tenth of a second old at most."""
REFRESH_S = 300.0
WAIT_S = 1.0
STALLED_S = 60.0
CRD = f"{Kind.INFERENCE_SERVICE.plural}.{Kind.INFERENCE_SERVICE.group}"

log = logging.getLogger("tidegate.operator")

T = TypeVar("T")
Reconcile = Callable[[ServiceKey], Awaitable[None]]


class UnderWay:
    """The services that are being read or decided, and since when their reports are due."""

    def __init__(self) -> None:
        self._due: dict[ServiceKey, float] = {}
        self._ended = asyncio.Event()

    def begin(self, key: ServiceKey, due: float) -> bool:
        """Whether it was not under way yet."""
        if key in self._due:
            return False
        self._due[key] = due
        return True

    def end(self, key: ServiceKey) -> float | None:
        """Seconds since its reports were due; None where it was not under way, as after a watch event."""
        due = self._due.pop(key, None)
        self._ended.set()
        return None if due is None else asyncio.get_running_loop().time() - due

    async def fewer_than(self, most: int) -> None:
        """Wait until there is room."""
        while len(self._due) >= most:
            self._ended.clear()
            await self._ended.wait()


async def work(queue: KeyedQueue, reconcile: Reconcile, under_way: UnderWay, telemetry: Telemetry) -> None:
    """Serve the queue for ever. How a look ended says when the next one is; a defect ends the process, loudly."""
    while True:
        key = await queue.get()
        began = time.perf_counter()
        outcome = "ok"
        try:
            await reconcile(key)
        except WaitFor as error:
            outcome = "wait"
            log.info("%s/%s: %s", *key, error.message)
            queue.succeed(key)
            queue.add(key, after=WAIT_S)
        except Stall as error:
            outcome = "stall"
            log.warning("%s/%s: %s: %s", *key, error.reason, error.message)
            queue.succeed(key)
            queue.add(key, after=STALLED_S)
        except Gone as error:
            outcome = "gone"
            log.info("%s/%s: %s", *key, error.message)
            queue.succeed(key)
        except RetryLater as error:
            outcome = "retry"
            wait = queue.fail(key)
            log.warning("%s/%s: %s: %s; again in %.1f s", *key, error.reason, error.message, wait)
        else:
            queue.succeed(key)
        delay = under_way.end(key)
        if delay is not None:
            telemetry.decision_delay.observe(delay)
        telemetry.reconcile_seconds.labels(outcome).observe(time.perf_counter() - began)
        telemetry.queue_depth.set(len(queue))


async def scale(
    view: View, queue: KeyedQueue, under_way: UnderWay, telemetry: Telemetry, pace: Pace, most: int = MOST_UNDER_WAY
) -> None:
    """Round after round: ask each service's pods in its turn, then let it be decided anew.

    Turns are spread over the interval. No more than `most` services are under way at once; where that makes a round
    late, the interval stretches, and decisions stay as quick as they were.
    """
    clock = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as asks:
        while True:
            began, idle = clock(), 0.0
            telemetry.scrape_interval.set(pace.interval)
            late = before = 0.0
            for key, after in spread(view.weights(), pace.interval):
                late, before = pace.caught_up(late, after - before), after
                idle += await _until(began + after + late)
                await under_way.fewer_than(most)
                late = pace.behind(late, clock() - began - after)
                if under_way.begin(key, began + after + late):
                    asks.create_task(_ask(view, key, queue, under_way, telemetry))
                telemetry.tick()
            idle += await _until(began + pace.interval + late)
            pace.round_took(clock() - began, idle)
            telemetry.tick()


async def _ask(view: View, key: ServiceKey, queue: KeyedQueue, under_way: UnderWay, telemetry: Telemetry) -> None:
    began = time.monotonic()
    asked, failed = await view.ask(key)
    telemetry.scrapes.labels("ok").inc(asked - failed)
    telemetry.scrapes.labels("failed").inc(failed)
    telemetry.scrape_seconds.observe(time.monotonic() - began)
    if not queue.remind(key):
        under_way.end(key)  # it waits for a person, or until a failure is forgotten


async def _until(when: float) -> float:
    """Sleep until then, and let others run in any case; returns the seconds slept on purpose."""
    wait = max(0.0, when - asyncio.get_running_loop().time())
    await asyncio.sleep(wait)
    return wait


async def refresh(view: View, queue: KeyedQueue, every: float = REFRESH_S) -> None:
    """Now and then list everything again: a watch that broke off may have missed a deletion."""
    while True:
        await asyncio.sleep(every)
        try:
            for key in await view.refresh():
                queue.add(key)
        except (WorldError, NotFound) as error:
            log.warning("refresh: %s", error)


async def first_list(view: View, wait: float = 2.0) -> set[ServiceKey]:
    """Know all there is before the first decision. Waits for the CRD, and for the API server, to be there."""
    return await _patiently(view.refresh, _unheard, wait)


async def able(
    probes: Iterable[Callable[[], Awaitable[None]]], lacks: Callable[[str | None], None], wait: float = 2.0
) -> None:
    """Wait until all that leading needs is there and may be read; meanwhile `lacks` is told what is not.

    One that could do nothing with the lease does not ask for it, nor counts as ready in a rollout.
    """
    for probe in probes:
        await _patiently(probe, lacks, wait)
    lacks(None)


async def _patiently(look: Callable[[], Awaitable[T]], lacks: Callable[[str | None], None], wait: float) -> T:
    said = None
    while True:
        try:
            return await look()
        except NotFound:
            why = f"the CRD {CRD} is not installed yet; apply it (kubectl apply -f crds/), I wait for it"
        except WorldError as error:
            why = f"{error.message}; I try again until it succeeds"
        lacks(why)
        if why != said:
            log.warning("%s", why)
            said = why
        await asyncio.sleep(wait)


def _unheard(_: str | None) -> None:
    """Once it leads, the log is enough."""


async def why_unwatched(view: View, error: BaseException) -> str:
    """What to tell of a watch that ended for good, which it does where its kind is gone."""
    try:
        await view.probe()
    except NotFound:
        return (
            f"the CRD {CRD} was removed, and with it every InferenceService; their pods are being deleted. "
            "To go on, apply the CRD again (kubectl apply -f crds/, or helm upgrade), then your InferenceServices. "
            "Ending with code 4; started again, I wait for the CRD"
        )
    except WorldError as another:
        return f"watching ended: {error}; and now {another.message}; ending with code 4, to begin again"
    log.error("watching ended", exc_info=error)
    return f"watching ended: {error}; ending with code 4, to begin again"
