"""The API external.metrics.k8s.io/v1beta1, which a HorizontalPodAutoscaler reads through the API server.

It shows what `/metrics` shows. The API server asks whoever it lets read external metrics, so nothing is asked here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tidegate_operator.observed import ServiceKey
from tidegate_operator.world.certificate import Certificate
from tidegate_operator.world.relay import FORWARDED_BY, NoAnswer, Relay
from tidegate_operator.world.service_metrics import FAMILIES, ServiceMetrics

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where numbers come from: this process while it leads, else the one that does."""

    metrics: ServiceMetrics
    leads: Callable[[], bool]
    relay: Relay


SOURCE: web.AppKey[Source] = web.AppKey("source", Source)


async def serve(source: Source, port: int, certificate: Certificate) -> web.AppRunner:
    """Listen on `port` with the certificate, which is renewed as long as this is served."""

    async def renewing(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(certificate.keep_renewing())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = application(source)
    app.cleanup_ctx.append(renewing)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=certificate.context).start()
    return runner


def application(source: Source) -> web.Application:
    """The two paths of the API. Which metrics there are, anybody can tell, so that the API is there without a leader;
    an APIService that nobody answers keeps namespaces from being deleted."""
    app = web.Application()
    app[SOURCE] = source
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
    source = request.app[SOURCE]
    if not source.leads():
        return await _passed_on(request, source.relay)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {
            "metricName": metric,
            "metricLabels": dict(sample.labels),
            "timestamp": now,
            "value": f"{round(sample.value * 1000)}m",
        }
        for sample in source.metrics.of(ServiceKey(namespace, wanted["service"]))
        if sample.family.name == metric and wanted.items() <= sample.labels.items()
    ]
    return web.json_response({"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "items": items})


async def _passed_on(request: web.Request, relay: Relay) -> web.Response:
    sender = request.headers.get(FORWARDED_BY)
    try:
        if sender is not None:
            raise NoAnswer(f"{sender} took this operator for the leading one, which it is not")
        answer = await relay.ask(request.rel_url.raw_path_qs)
    except NoAnswer as error:
        return _refused(503, "ServiceUnavailable", f"{error}; an HPA holds meanwhile")
    return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type)


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
