"""An API server in memory, as far as the operator can tell: apply, list, get, uids, generations, failures on demand."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from tidegate_operator.world.api import JSON, NotFound
from tidegate_operator.world.calls import Call, Kind

Body = dict[str, Any]
Place = tuple[Kind, str | None, str | None]


class InMemoryApi:
    """Implements tidegate_operator.world.api.Api. `calls` records every right that was used."""

    def __init__(self) -> None:
        self.objects: dict[Place, Body] = {}
        self.calls: list[Call] = []
        self.written: list[tuple[Call, str, Body]] = []
        self.events: list[Body] = []
        self.fail_with: dict[Call, Exception] = {}
        self._numbers = itertools.count(1)

    def put(self, kind: Kind, body: Body) -> Body:
        """Somebody else made or edited an object."""
        meta = body["metadata"]
        meta.setdefault("uid", f"uid-{next(self._numbers)}")
        meta.setdefault("creationTimestamp", "2026-11-30T06:00:00Z")
        meta.setdefault("generation", 1)
        meta["resourceVersion"] = str(next(self._numbers))
        self.objects[(kind, meta["namespace"], meta["name"])] = body
        return copy.deepcopy(body)

    async def request(
        self,
        verb: str,
        kind: Kind,
        namespace: str | None = None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> Body:
        call = kind.call(verb, subresource)
        self.calls.append(call)
        if call in self.fail_with:
            raise self.fail_with[call]
        place = (kind, namespace, name)
        if verb == "list":
            items = [copy.deepcopy(o) for (k, _, _), o in self.objects.items() if k is kind]
            return {"metadata": {}, "items": items}
        if verb == "get":
            if place not in self.objects:
                raise NotFound(name)
            return copy.deepcopy(self.objects[place])
        assert body is not None
        self.written.append((call, name or "", copy.deepcopy(body)))
        if verb == "create":
            self.events.append(body)
            return body
        return self._patch(place, subresource, body)

    def _patch(self, place: Place, subresource: str | None, body: Body) -> Body:
        kind, namespace, name = place
        live = self.objects.get(place)
        if live is None:
            if subresource or kind is Kind.POD:
                raise NotFound(name)
            self.calls.append(kind.call("create"))  # apply of what is not there needs this right too
            made = copy.deepcopy(body)
            made["metadata"]["namespace"] = namespace
            return self.put(kind, made)
        before = copy.deepcopy(live)
        for field, value in body.items():
            if field == "metadata":
                for part in ("labels", "annotations"):
                    live["metadata"].setdefault(part, {}).update(value.get(part) or {})
            else:
                live[field] = copy.deepcopy(value)
        if live != before:
            live["metadata"]["resourceVersion"] = str(next(self._numbers))
        if live.get("spec") != before.get("spec"):
            live["metadata"]["generation"] += 1
        return copy.deepcopy(live)
