"""What runs while this process leads: workers that serve the queue, one scaling loop for all services, a refresh."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from tidegate_operator.errors import Gone, RetryLater, Stall, WaitFor, WorldError
from tidegate_operator.observed import ServiceKey
from tidegate_operator.queue import KeyedQueue
from tidegate_operator.world.api import NotFound
from tidegate_operator.world.telemetry import Telemetry
from tidegate_operator.world.view import View

WORKERS = 4
REFRESH_S = 300.0
WAIT_S = 1.0
STALLED_S = 60.0

log = logging.getLogger("tidegate.operator")

Reconcile = Callable[[ServiceKey], Awaitable[None]]


async def work(queue: KeyedQueue, reconcile: Reconcile, telemetry: Telemetry) -> None:
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
        telemetry.reconcile_seconds.labels(outcome).observe(time.perf_counter() - began)
        telemetry.queue_depth.set(len(queue))


async def scale(view: View, queue: KeyedQueue, telemetry: Telemetry, interval: float) -> None:
    """Each interval: ask every pod for its load, then let every service be decided anew."""
    while True:
        began = time.monotonic()
        asked, failed = await view.scrape()
        telemetry.scrapes.labels("ok").inc(asked - failed)
        telemetry.scrapes.labels("failed").inc(failed)
        telemetry.scrape_seconds.observe(time.monotonic() - began)
        for key in view.service_keys():
            queue.remind(key)
        telemetry.tick()
        await asyncio.sleep(max(0.0, began + interval - time.monotonic()))


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
    while True:
        try:
            return await view.refresh()
        except NotFound:
            log.warning("the CRD inferenceservices.tidegate.dev is not installed yet; apply it, I wait for it")
        except WorldError as error:
            log.warning("first list: %s", error.message)
        await asyncio.sleep(wait)
