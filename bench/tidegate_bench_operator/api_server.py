"""An API server, as far as the operator can tell: discovery, list, watch, get, server-side apply, leases, events."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from tidegate_bench_operator.kinds import GROUPS, Body, stamp

Place = tuple[str, str, str]
"""Plural, namespace, name."""
REMEMBERED = 20_000


@dataclass(slots=True)
class Objects:
    """All objects, and who watches which kind."""

    of: dict[Place, Body] = field(default_factory=dict)
    watchers: dict[str, set[asyncio.Queue[bytes]]] = field(default_factory=dict)
    applied: Callable[[str, Body], None] = lambda _plural, _body: None
    """Told of every object that was applied: the controllers of the stand-in."""
    calls: Counter[str] = field(default_factory=Counter)
    told: dict[str, deque[tuple[int, bytes]]] = field(default_factory=dict)
    """The newest events of each kind and their versions, for those whose watch begins after their list."""
    version: int = 0

    def put(self, plural: str, body: Body) -> Body:
        """Make or replace an object; the watchers are told."""
        meta = body["metadata"]
        place = (plural, meta.get("namespace", ""), meta["name"])
        event = "MODIFIED" if place in self.of else "ADDED"
        self.version += 1
        meta.setdefault("uid", f"uid-{self.version}")
        meta["resourceVersion"] = str(self.version)
        self.of[place] = body
        self._tell(plural, event, body)
        return body

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object."""
        body = self.of.pop((plural, namespace, name))
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self._tell(plural, "DELETED", body)

    def apply(self, place: Place, body: Body, *, status: bool) -> Body | None:
        """Merge as server-side apply does for a sole manager; None: there is nothing to apply a status to."""
        live = self.of.get(place)
        if live is None:
            if status:
                return None
            live = copy.deepcopy(body)
            live["metadata"] |= {"namespace": place[1], "generation": 1, "creationTimestamp": stamp()}
        else:
            before = live.get("spec")
            live |= {part: value for part, value in body.items() if part != "metadata"}
            for part in ("labels", "annotations"):
                live["metadata"].setdefault(part, {}).update(body["metadata"].get(part) or {})
            if live.get("spec") != before:
                live["metadata"]["generation"] += 1
        self.put(place[0], live)
        if not status:
            self.applied(place[0], live)
        return live

    def _tell(self, plural: str, event: str, body: Body) -> None:
        line = json.dumps({"type": event, "object": body}, separators=(",", ":")).encode() + b"\n"
        self.told.setdefault(plural, deque(maxlen=REMEMBERED)).append((self.version, line))
        for queue in self.watchers.get(plural, ()):
            queue.put_nowait(line)


def application(objects: Objects) -> web.Application:
    """The server. Paths are read by hand: /api/v1/... and /apis/GROUP/VERSION/..."""

    async def handle(request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts == ["version"]:
            return web.json_response({"major": "1", "minor": "34"})
        if parts == ["api"]:
            return web.json_response({"versions": ["v1"]})
        if parts == ["apis"]:
            return web.json_response({"groups": _groups()})
        root = 2 if parts[0] == "api" else 3
        version, rest = "/".join(parts[1:root]), parts[root:]
        if not rest:
            return web.json_response({"resources": _resources(version)})
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural = rest[0]
        objects.calls[f"{request.method} {'/'.join((plural, *rest[2:]))}"] += 1
        if len(rest) == 1:
            if request.method == "POST":
                return await _create(objects, plural, namespace, request)
            if "watch" in request.query:
                return await _watch(objects, plural, request)
            items = [body for (kind, _, _), body in objects.of.items() if kind == plural]
            return web.json_response(
                {"kind": "List", "metadata": {"resourceVersion": str(objects.version)}, "items": items}
            )
        return await _one(objects, (plural, namespace, rest[1]), request, status=rest[2:] == ["status"])

    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


async def _create(objects: Objects, plural: str, namespace: str, request: web.Request) -> web.Response:
    body = await request.json()
    if plural != "events":
        body["metadata"] |= {"namespace": namespace, "creationTimestamp": stamp()}
        objects.put(plural, body)
    return web.json_response(body, status=201)


async def _one(objects: Objects, place: Place, request: web.Request, *, status: bool) -> web.Response:
    live: Body | None
    if request.method == "GET":
        live = objects.of.get(place)
    elif request.method == "PUT":
        body = await request.json()
        live = objects.put(place[0], body) if place in objects.of else None
    else:
        live = objects.apply(place, json.loads(await request.read()), status=status)
    if live is None:
        text = {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"{place} not found"}
        return web.json_response(text, status=404)
    return web.json_response(live)


async def _watch(objects: Objects, plural: str, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    since = int(request.query.get("resourceVersion") or 0)
    for version, line in objects.told.get(plural, ()):
        if version > since:
            queue.put_nowait(line)
    watchers = objects.watchers.setdefault(plural, set())
    watchers.add(queue)
    try:
        while True:
            await response.write(await queue.get())
    except ConnectionError:
        return response
    finally:
        watchers.discard(queue)


def _groups() -> list[Body]:
    return [
        {
            "name": version.split("/")[0],
            "versions": [{"groupVersion": version, "version": version.split("/")[1]}],
            "preferredVersion": {"groupVersion": version, "version": version.split("/")[1]},
        }
        for version in GROUPS
        if "/" in version
    ]


def _resources(version: str) -> list[Body]:
    verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
    return [
        {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": True, "verbs": verbs}
        for plural, kind in GROUPS.get(version, {}).items()
    ]
