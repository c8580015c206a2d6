"""The operator's own `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tidegate_operator.world.service_metrics import ServiceMetrics

RECONCILE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
DELAY_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5, 2.5, 5, 10, 30)


class Telemetry:
    """The operator's metric families, on a registry of its own, and how recently the scaling loop ticked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ticked_at: float | None = None
        self.leads = False
        self.lacks: str | None = "it has just started"
        self.registry = CollectorRegistry()
        self.services = ServiceMetrics(clock)
        self.registry.register(self.services)
        self.leader = Gauge("tidegate_operator_leader", "1 while this process holds the lease", registry=self.registry)
        self.queue_depth = Gauge("tidegate_operator_queue_depth", "Names that want a look", registry=self.registry)
        self.reconcile_seconds = Histogram(
            "tidegate_operator_reconcile_seconds",
            "One look at one service, by how it ended",
            ["outcome"],
            buckets=RECONCILE_SECONDS,
            registry=self.registry,
        )
        self.scale_decisions = Counter(
            "tidegate_operator_scale_decisions",
            "Changes of a service's number of replicas",
            ["direction"],
            registry=self.registry,
        )
        self.scrapes = Counter(
            "tidegate_operator_scrapes", "Reads of engine pods' /load", ["outcome"], registry=self.registry
        )
        self.scrape_seconds = Histogram(
            "tidegate_operator_scrape_seconds",
            "One read of all pods of one service",
            buckets=RECONCILE_SECONDS,
            registry=self.registry,
        )
        self.scrape_interval = Gauge(
            "tidegate_operator_scrape_interval_seconds",
            "Between two reads of a service's pods: as configured, or longer where that many take longer",
            registry=self.registry,
        )
        self.decision_delay = Histogram(
            "tidegate_operator_decision_delay_seconds",
            "From when a service's pods were due to be read until its decision was applied",
            buckets=DELAY_SECONDS,
            registry=self.registry,
        )

    def lack(self, what: str | None) -> None:
        """What leading needs and this process cannot have; None: nothing."""
        self.lacks = what

    def take_over(self) -> None:
        """This process holds the lease."""
        self.leads = True
        self.leader.set(1)

    def step_down(self) -> None:
        """It holds the lease no more, or ends: from now on it speaks for no service."""
        self.leads = False
        self.leader.set(0)
        self.services.withdraw()

    def scaled(self, direction: str) -> None:
        """A number of replicas was changed, `up` or `down`."""
        self.scale_decisions.labels(direction).inc()

    def tick(self) -> None:
        """The scaling loop is alive."""
        self._ticked_at = self._clock()

    def silent_for(self) -> float:
        """Seconds since the last tick; 0 while this process waits for the lease."""
        return 0.0 if self._ticked_at is None else self._clock() - self._ticked_at


async def serve(telemetry: Telemetry, port: int, most_silent: float) -> web.AppRunner:
    """Listen on `port`; `/healthz` is 503 once the scaling loop has been silent for `most_silent` seconds.

    `/readyz` is that too while this process lacks what leading needs. Standing by is ready, or a rolling update, whose
    new pod has to be ready before the old one gives the lease back, would wait for ever.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(telemetry.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(_: web.Request) -> web.Response:
        silent = telemetry.silent_for()
        if silent > most_silent:
            return web.Response(status=503, text=f"the scaling loop has been silent for {silent:.0f} s\n")
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        if telemetry.lacks is not None:
            return web.Response(status=503, text=f"{telemetry.lacks}\n")
        return await health(request)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", health), web.get("/readyz", ready)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
