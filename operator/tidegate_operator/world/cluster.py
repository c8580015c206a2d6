"""The cluster as the operator sees and writes it: the view, and the few writes that are ever made."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate_operator.errors import Gone, RetryLater, Stall, WaitFor, WorldError
from tidegate_operator.observed import ChildConflict, ServiceKey, ServiceObserved
from tidegate_operator.world.api import APPLY, MERGE, Api, NotFound
from tidegate_operator.world.calls import CHILDREN, Kind
from tidegate_operator.world.objects import ServiceRecord
from tidegate_operator.world.pods import DELETION_COST
from tidegate_operator.world.view import View

FIELD_MANAGER = "tidegate-operator"
RESEND_AFTER_S = 300.0
"""Children that are not watched (all but the Deployment) are applied again this often."""
EXAMINE_AFTER_S = 10.0

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A child as this process knows it: which object, and what was last sent to it."""

    uid: str | None = None
    digest: str = ""
    generation: int = 0
    sent_at: float = 0.0


class Cluster:
    """What is seen (`view`) and what is written. It chooses nothing."""

    def __init__(self, api: Api, view: View, identity: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = view
        self._api, self._identity, self._clock = api, identity, clock
        self._children: dict[ServiceKey, dict[str, Child]] = {}
        self._conflicts: dict[ServiceKey, tuple[float, tuple[ChildConflict, ...]]] = {}

    def forget(self, key: ServiceKey) -> None:
        """The service is gone: drop what was remembered for its sake."""
        self._children.pop(key, None)
        self._conflicts.pop(key, None)

    async def observe(self, service: ServiceRecord) -> ServiceObserved:
        """Everything seen about the service. Looks up children it does not know yet, which may raise a WorldError."""
        return self.view.facts(service.key, await self._examine(service))

    async def _examine(self, service: ServiceRecord) -> tuple[ChildConflict, ...]:
        """Find out which children exist under the service's name, and whether they are its own."""
        checked_at, conflicts = self._conflicts.get(service.key, (0.0, ()))
        if conflicts and self._clock() - checked_at < EXAMINE_AFTER_S:
            return conflicts
        known = self._children.setdefault(service.key, {})
        found: list[ChildConflict] = []
        for name, kind in CHILDREN.items():
            if name in known:
                continue
            try:
                live = await self._api.request("get", kind, service.key.namespace, service.key.name)
            except NotFound:
                known[name] = Child()
                continue
            owner = owner_of(live, service)
            if owner is None:
                known[name] = Child(uid=live["metadata"]["uid"])
            else:
                found.append(ChildConflict(kind=name, name=service.key.name, owner=owner))
        self._conflicts[service.key] = (self._clock(), tuple(found))
        return tuple(found)

    async def apply(self, service: ServiceRecord, manifest: Manifest) -> bool:
        """Server-side apply of a child, where it differs from what was last sent or somebody edited it.

        Returns whether it was sent. Raises a WorldError.
        """
        key, name = service.key, manifest["kind"]
        child = self._children.get(key, {}).get(name, Child())
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        if digest == child.digest and not self._stale(key, name, child):
            return False
        body = json.loads(json.dumps(manifest))
        if child.uid is not None:
            body["metadata"]["uid"] = child.uid  # another object under this name is then refused, not overwritten
        try:
            live = await self._write("patch", CHILDREN[name], key, body, APPLY)
        except WorldError as error:
            self._children.get(key, {}).pop(name, None)
            if isinstance(error, Stall) and "metadata.uid: Invalid value" in error.message:
                raise RetryLater("Replaced", f"another object now is {name} {key.name}") from error
            raise
        if CHILDREN[name] is Kind.DEPLOYMENT:
            self.view.see(Kind.DEPLOYMENT, live, deleted=False)
        meta = live["metadata"]
        generation, sent_at = int(meta.get("generation", 0)), self._clock()
        if not child.digest:  # many services start at once: their next turns are spread
            sent_at -= RESEND_AFTER_S / 3 * share_of(service.uid)
        self._children.setdefault(key, {})[name] = Child(meta["uid"], digest, generation, sent_at)
        return True

    def is_settled(self, key: ServiceKey) -> bool:
        """Whether every child was sent, nobody edited one since, and none is due to be sent again."""
        known = self._children.get(key, {})
        return all(
            name in known and known[name].digest and not self._stale(key, name, known[name]) for name in CHILDREN
        )

    async def write_status(self, service: ServiceRecord, status: Manifest) -> None:
        """Server-side apply of the whole status, and of nothing else."""
        kind = Kind.INFERENCE_SERVICE
        body = {
            "apiVersion": kind.api_version,
            "kind": "InferenceService",
            "metadata": {"name": service.key.name, "namespace": service.key.namespace, "uid": service.uid},
            "status": dict(status),
        }
        live = await self._write("patch", kind, service.key, body, APPLY, subresource="status")
        self.view.see(kind, live, deleted=False)

    async def tell(self, service: ServiceRecord, *, warning: bool, reason: str, message: str) -> None:
        """An event about the service."""
        now = datetime.now(UTC)
        body = {
            "apiVersion": Kind.EVENT.api_version,
            "kind": "Event",
            "metadata": {"name": f"{service.key.name}.{uuid.uuid4().hex[:16]}", "namespace": service.key.namespace},
            "eventTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "note": message[:1024],
            "action": "Reconcile",
            "reportingController": "tidegate.dev/operator",
            "reportingInstance": self._identity[:128],
            "regarding": {
                "apiVersion": Kind.INFERENCE_SERVICE.api_version,
                "kind": "InferenceService",
                "namespace": service.key.namespace,
                "name": service.key.name,
                "uid": service.uid,
            },
        }
        try:
            await self._api.request("create", Kind.EVENT, service.key.namespace, body=body)
        except NotFound as error:
            raise Gone("NamespaceGone", str(error)) from error

    async def set_deletion_cost(self, key: ServiceKey, pod: str, cost: int) -> None:
        """A hint to the ReplicaSet: pods of lower cost go first. A pod that is gone needs none."""
        body = {"metadata": {"annotations": {DELETION_COST: str(cost)}}}
        try:
            live = await self._api.request("patch", Kind.POD, key.namespace, pod, body=body, content_type=MERGE)
        except NotFound:
            return
        self.view.see(Kind.POD, live, deleted=False)

    def _stale(self, key: ServiceKey, name: str, child: Child) -> bool:
        if CHILDREN[name] is not Kind.DEPLOYMENT:
            return self._clock() - child.sent_at > RESEND_AFTER_S
        live = self.view.deployment(key)
        return live is None or (live.uid, live.facts.generation) != (child.uid, child.generation)

    async def _write(
        self, verb: str, kind: Kind, key: ServiceKey, body: dict[str, Any], content_type: str, **more: Any
    ) -> dict[str, Any]:
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        try:
            return await self._api.request(
                verb, kind, key.namespace, key.name, query=query, body=body, content_type=content_type, **more
            )
        except NotFound as error:
            raise Gone("NotFound", str(error)) from error


def share_of(uid: str) -> float:
    """A number from 0 to 1 that is always the same for one object, and evenly spread over many."""
    return zlib.crc32(uid.encode()) / 2**32


def owner_of(live: Manifest, service: ServiceRecord) -> str | None:
    """Whose object it is, in words; None: this service's own. Raises WaitFor where it is about to be collected."""
    meta = live["metadata"]
    owners = meta.get("ownerReferences") or ()
    what = f"{live.get('kind', 'object')} {meta['name']}"
    if any(owner.get("uid") == service.uid for owner in owners):
        if meta.get("deletionTimestamp"):
            raise WaitFor("ChildIsBeingDeleted", f"{what} is being deleted; it is made again afterwards")
        return None
    if any(owner.get("kind") == "InferenceService" and owner.get("name") == service.key.name for owner in owners):
        raise WaitFor("EarlierServiceIsCollected", f"{what} belongs to an earlier service of this name")
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller:
        return f"{controller['kind']}/{controller['name']}"
    return (meta.get("labels") or {}).get("app.kubernetes.io/managed-by") or "nobody"
