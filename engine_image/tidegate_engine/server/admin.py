"""The admin application: liveness, readiness, drain, metrics and load, on a port of its own."""

from __future__ import annotations

import time

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tidegate_engine.server.http import CloseWhileDraining
from tidegate_engine.server.load import load
from tidegate_engine.server.logs import log
from tidegate_engine.server.metrics import EngineCollector, exposition
from tidegate_engine.server.service import Service


def admin_app(service: Service) -> ASGIApp:
    """For the kubelet, the operator and Prometheus."""
    collector = EngineCollector(service.telemetry, lambda: service.engine, service.settings.served_name)

    async def health(_: Request) -> Response:
        if service.engine is not None and service.engine.stalled(time.monotonic()):
            return PlainTextResponse("stalled: work waits and no step finishes\n", 503)
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> Response:
        state = service.state
        return PlainTextResponse(f"{state}\n", 200 if state == "ready" else 503)

    async def drain(request: Request) -> Response:
        service.drained = request.method == "POST"
        log("drain" if service.drained else "undrain")
        return PlainTextResponse(f"{service.state}\n")

    async def show_load(_: Request) -> Response:
        slots = service.settings.max_running_requests
        body = load(service.engine, service.telemetry, service.boot, slots, service.state, time.monotonic())
        return Response(body, media_type="application/json")

    async def metrics(_: Request) -> Response:
        return Response(exposition(collector), headers={"content-type": CONTENT_TYPE_LATEST})

    application = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/ready", ready, methods=["GET"]),
            Route("/drain", drain, methods=["POST", "DELETE"]),
            Route("/load", show_load, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
        ]
    )
    return CloseWhileDraining(application, service)
