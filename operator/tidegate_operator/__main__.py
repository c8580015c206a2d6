"""The operator's process: wait for the lease, then watch, decide and write until told to end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import signal
import sys
import time

import kopf
from kubernetes.aio.client.api_client import ApiClient

from tidegate_operator import handlers, loop
from tidegate_operator.observed import ServiceKey
from tidegate_operator.pace import Pace
from tidegate_operator.queue import KeyedQueue
from tidegate_operator.reconcile import Reconciler
from tidegate_operator.settings import Settings, SettingsError, read
from tidegate_operator.world import api, external_metrics, leader, telemetry
from tidegate_operator.world.certificate import Certificate, NoCertificate
from tidegate_operator.world.cluster import Cluster
from tidegate_operator.world.load_client import HttpLoadClient
from tidegate_operator.world.relay import Relay, authority
from tidegate_operator.world.scrape import Scraper
from tidegate_operator.world.view import View

WRONG_FLAG, LEASE_LOST, WATCH_LOST = 2, 3, 4


class WatchLost(Exception):
    """A watch ended for good, as when the CRD is removed: begin again, and wait for it to come back."""


def main() -> int:
    """Run until SIGTERM; returns the exit code (docs/seams.md)."""
    try:
        settings = read(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"tidegate-operator: {error}", file=sys.stderr)  # noqa: T201 - before logging is set up
        return WRONG_FLAG
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("kopf.activities").setLevel(logging.WARNING)
    # A connection to each pod is kept: as many files as may be had, as Go's runtime takes them for other operators.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Reports of thousands of pods come and go without a cycle in them; looking for one among all that is kept, as often
    # as the defaults (700, 10, 10) have it, pauses everything for a fifth of a second and takes a tenth of the time.
    gc.set_threshold(100_000, 20, 20)
    try:
        asyncio.run(run(settings))
    except asyncio.CancelledError:
        return 0
    except leader.LeaseLost as error:
        loop.log.error("%s; ending, so that only one leads", error)
        return LEASE_LOST
    except NoCertificate as error:
        loop.log.error("--external-metrics-tls: %s", error)
        return WRONG_FLAG
    except WatchLost as error:
        loop.log.error("%s", error)
        return WATCH_LOST
    return 0


async def run(settings: Settings) -> None:
    """Build the parts, stand by for the lease, lead."""
    # Until kopf installs its own handlers, SIGTERM ends the wait for the lease.
    this_task = asyncio.current_task()
    if this_task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, this_task.cancel)
    client = await api.connect()
    signs = telemetry.Telemetry(time.monotonic)
    scraper = Scraper(HttpLoadClient(settings.scrape_timeout))
    asked = api.HttpApi(client)
    cluster = Cluster(asked, View(asked, scraper), settings.identity)
    lock = _lock(settings, client)
    try:
        async with contextlib.AsyncExitStack() as served:
            runner = await telemetry.serve(signs, settings.metrics_port, 30 + 10 * settings.scrape_interval)
            served.push_async_callback(runner.cleanup)
            if settings.external_metrics_tls is not None:
                certificate = Certificate(settings.external_metrics_tls)
                relay = Relay(settings.identity, lambda: lock.holder, lambda: certificate.fingerprints)
                served.push_async_callback(relay.close)
                source = external_metrics.Source(signs.services, lambda: signs.leads, relay)
                runner = await external_metrics.serve(source, settings.external_metrics_port, certificate)
                served.push_async_callback(runner.cleanup)
            await loop.able((cluster.view.probe, lock.probe), signs.lack)
            loop.log.info("%s waits for lease %s/%s", settings.identity, settings.lease_namespace, settings.lease_name)
            await leader.lead(lock, settings.lease_duration, functools.partial(act, settings, cluster, signs))
    finally:
        await scraper.close()
        await client.close()  # type: ignore[no-untyped-call]


def _lock(settings: Settings, client: ApiClient) -> leader.TimedLease:
    """The lease, to be signed with the address at which the others find this process's numbers."""
    address = None
    if settings.external_metrics_tls is not None and settings.address is not None:
        address = authority(str(settings.address), settings.external_metrics_port)
    return leader.TimedLease(
        settings.lease_name,
        settings.lease_namespace,
        settings.identity,
        client,
        patience=max(1.0, settings.lease_duration / 5),
        address=address,
    )


async def act(settings: Settings, cluster: Cluster, signs: telemetry.Telemetry) -> None:
    """Lead: know everything, then work and watch. Any part that ends, ends all."""
    signs.take_over()
    loop.log.info("%s leads", settings.identity)
    queue, under_way, pace = KeyedQueue(time.monotonic), loop.UnderWay(), Pace(settings.scrape_interval)
    reconciler = Reconciler(
        cluster=cluster,
        engine_image=settings.engine_image,
        operator_namespace=settings.lease_namespace,
        clock=time.time,
        scaled=signs.scaled,
        shown=signs.services.show,
        pace=pace,
    )
    tasks: list[asyncio.Task[None]] = []
    try:
        known: set[ServiceKey] = await loop.first_list(cluster.view)
        for key in known:
            queue.add(key, after=0)
        signs.tick()
        watching = asyncio.create_task(_watch(settings.identity, cluster, queue), name="kopf")
        tasks += [
            watching,
            asyncio.create_task(loop.scale(cluster.view, queue, under_way, signs, pace), name="scaling"),
            asyncio.create_task(loop.refresh(cluster.view, queue), name="refresh"),
            *(
                asyncio.create_task(loop.work(queue, reconciler.reconcile, under_way, signs))
                for _ in range(loop.WORKERS)
            ),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {watching}:
            task.result()
        if watching in done and (error := watching.exception()) is not None:
            raise WatchLost(await loop.why_unwatched(cluster.view, error)) from error
    finally:
        signs.step_down()  # before kopf takes its time to end
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(identity: str, cluster: Cluster, queue: KeyedQueue) -> None:
    """Watch until told to end. Raises where a kind cannot be watched any more."""
    await kopf.operator(
        registry=handlers.registry(cluster.view, queue),
        settings=handlers.settings(),
        standalone=True,
        clusterwide=True,
        # Else kopf looks the user's name up, and a container's numeric user has none.
        identity=identity,  # type: ignore[arg-type]  # kopf keeps its name for such a string private
    )


if __name__ == "__main__":
    sys.exit(main())
