"""The API external.metrics.k8s.io/v1beta1, which a HorizontalPodAutoscaler reads through the API server.

It shows what `/metrics` shows. The API server asks whoever it lets read external metrics, so nothing is asked here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from tidegate_operator.observed import ServiceKey
from tidegate_operator.world.service_metrics import FAMILIES, ServiceMetrics

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
RELOAD_EVERY_S = 30.0
METRICS: web.AppKey[ServiceMetrics] = web.AppKey("metrics", ServiceMetrics)

Json = dict[str, Any]

log = logging.getLogger("tidegate.operator")


class NoCertificate(Exception):
    """The folder holds no certificate that can be used; the message names it and what is wrong."""


class Certificate:
    """The certificate in a folder, newest that could be read; one that is renewed is taken for new connections."""

    def __init__(self, tls: Path) -> None:
        """Read `tls.crt` and `tls.key`. Raises NoCertificate."""
        self._tls = tls
        self._newest = self.context = self._read()
        self.context.sni_callback = self._use

    def renew(self) -> None:
        """Read it again. Raises NoCertificate, and then the former one stays in use."""
        self._newest = self._read()

    def _use(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _read(self) -> ssl.SSLContext:
        # A context of its own each time: one that fails to load half-way has lost its key.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._tls / "tls.crt", self._tls / "tls.key")
        except OSError as error:  # ssl.SSLError is one too
            raise NoCertificate(f"{self._tls}: no tls.crt and tls.key that fit together: {error}") from error
        return context


async def serve(metrics: ServiceMetrics, port: int, tls: Path) -> web.AppRunner:
    """Listen on `port` with the certificate in the folder `tls`, as in a Secret of that type. Raises NoCertificate."""
    certificate = Certificate(tls)

    async def renewing(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(_renew(certificate))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = application(metrics)
    app.cleanup_ctx.append(renewing)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=certificate.context).start()
    return runner


async def _renew(certificate: Certificate) -> None:
    while True:
        await asyncio.sleep(RELOAD_EVERY_S)
        try:
            await asyncio.to_thread(certificate.renew)
        except NoCertificate as error:
            log.warning("%s; the former certificate stays in use", error)


def application(metrics: ServiceMetrics) -> web.Application:
    """The two paths of the API."""
    app = web.Application()
    app[METRICS] = metrics
    root = f"/apis/{GROUP_VERSION}"
    app.add_routes([web.get(root, _discover), web.get(root + "/namespaces/{namespace}/{metric}", _values)])
    return app


async def _discover(_: web.Request) -> web.Response:
    resources = [
        {"name": f.name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        for f in FAMILIES
    ]
    return web.json_response(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": resources}
    )


async def _values(request: web.Request) -> web.Response:
    namespace, metric = request.match_info["namespace"], request.match_info["metric"]
    if metric not in {family.name for family in FAMILIES}:
        return _refused(404, "NotFound", f"{metric}: there is no such metric; {GROUP_VERSION} lists them")
    try:
        wanted = parse_selector(request.query.get("labelSelector", ""))
    except ValueError as error:
        return _refused(400, "BadRequest", str(error))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {
            "metricName": metric,
            "metricLabels": dict(sample.labels),
            "timestamp": now,
            "value": f"{round(sample.value * 1000)}m",
        }
        for sample in request.app[METRICS].of(ServiceKey(namespace, wanted["service"]))
        if sample.family.name == metric and wanted.items() <= sample.labels.items()
    ]
    return web.json_response({"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "items": items})


def parse_selector(text: str) -> Mapping[str, str]:
    """The labels of a selector of equalities. Raises ValueError where it is none, or names no service.

    An HPA adds up all that is returned, so that without a service it would follow the whole namespace.
    """
    wanted = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not equals or name.endswith("!") or " " in part:
            raise ValueError(f"labelSelector {text!r}: only NAME=VALUE is understood; use metric.selector.matchLabels")
        wanted[name] = value.removeprefix("=")
    if "service" not in wanted:
        raise ValueError(f"labelSelector {text!r}: names no service; set metric.selector.matchLabels.service")
    return wanted


def _refused(code: int, reason: str, message: str) -> web.Response:
    status: Json = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return web.json_response(status | {"reason": reason, "message": message}, status=code)
