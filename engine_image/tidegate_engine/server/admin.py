"""The admin application: liveness, readiness, drain, metrics, load and requests, on a port of its own."""

from __future__ import annotations

import time

import msgspec
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
from tidegate_engine.server.timeline import KEPT, KnownRequests


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

    async def requests(_: Request) -> Response:
        engine = service.engine
        known = engine.timelines.known(time.monotonic()) if engine else KnownRequests([])
        return Response(msgspec.json.encode(known), media_type="application/json")

    async def request_timeline(request: Request) -> Response:
        id, engine = request.path_params["id"], service.engine
        found = engine.timelines.find(id, time.monotonic()) if engine else None
        if found is None:
            return PlainTextResponse(f"{id}: not in flight, and not one of the last {KEPT} requests\n", 404)
        return Response(msgspec.json.encode(found), media_type="application/json")

    application = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/ready", ready, methods=["GET"]),
            Route("/drain", drain, methods=["POST", "DELETE"]),
            Route("/load", show_load, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
            Route("/debug/requests", requests, methods=["GET"]),
            Route("/debug/requests/{id}", request_timeline, methods=["GET"]),
        ]
    )
    return CloseWhileDraining(application, service)
