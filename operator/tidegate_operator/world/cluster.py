"""The cluster as the operator sees and writes it: what was last seen of every service, and the few writes it makes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tidegate_operator.errors import Gone, RetryLater, WaitFor, WorldError
from tidegate_operator.observed import ChildConflict, Phase, ReplicaFacts, ServiceKey, ServiceObserved
from tidegate_operator.world.api import APPLY, MERGE, Api, NotFound
from tidegate_operator.world.cache import Store
from tidegate_operator.world.calls import CHILDREN, WATCHED, Kind
from tidegate_operator.world.objects import (
    DeploymentRecord,
    ServiceRecord,
    SliceRecord,
    read_deployment,
    read_service,
    read_slice,
)
from tidegate_operator.world.pods import DELETION_COST, SERVICE_LABEL, PodRecord, read_pod
from tidegate_operator.world.scrape import Scraper, Target

FIELD_MANAGER = "tidegate-operator"
PAGE = 500
RESEND_AFTER_S = 300.0
"""Children that are not watched (Service, ServiceAccount, PodDisruptionBudget) are applied again this often."""
EXAMINE_AFTER_S = 10.0
TERMINATIONS_KEPT = 5

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A child as this process knows it: which object, and what was last sent to it."""

    uid: str | None = None
    digest: str = ""
    generation: int = 0
    sent_at: float = 0.0


class Cluster:
    """Caches fed by watch events, and the writes. It chooses nothing."""

    def __init__(
        self, api: Api, scraper: Scraper, identity: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._scraper, self._identity, self._clock = api, scraper, identity, clock
        self._services: Store[ServiceRecord] = Store(read_service)
        self._deployments: Store[DeploymentRecord] = Store(read_deployment)
        self._pods: Store[PodRecord] = Store(read_pod)
        self._slices: Store[SliceRecord] = Store(read_slice)
        self._children: dict[ServiceKey, dict[str, Child]] = {}
        self._conflicts: dict[ServiceKey, tuple[float, tuple[ChildConflict, ...]]] = {}

    def _store(self, kind: Kind) -> Store[Any]:
        stores: dict[Kind, Store[Any]] = {
            Kind.INFERENCE_SERVICE: self._services,
            Kind.DEPLOYMENT: self._deployments,
            Kind.POD: self._pods,
            Kind.ENDPOINT_SLICE: self._slices,
        }
        return stores[kind]

    # Seeing

    def see(self, kind: Kind, body: dict[str, Any], *, deleted: bool) -> ServiceKey | None:
        """A watch event; returns the service that wants a look."""
        store = self._store(kind)
        return store.lose(body) if deleted else store.see(body)

    async def refresh(self) -> set[ServiceKey]:
        """List everything once: at the start, and now and then, since a watch may miss a deletion.

        Returns the services of which anything changed.
        """
        changed: set[ServiceKey] = set()
        for kind in WATCHED:
            store = self._store(kind)
            store.begin_list()
            query = {"limit": str(PAGE)}
            if kind is not Kind.INFERENCE_SERVICE:
                query["labelSelector"] = SERVICE_LABEL
            items: list[dict[str, Any]] = []
            while True:
                page = await self._api.request("list", kind, query=query)
                items += page.get("items") or ()
                if not (token := page["metadata"].get("continue")):
                    break
                query["continue"] = token
            changed |= store.end_list(items)
        return changed

    def keys(self) -> tuple[ServiceKey, ...]:
        """Every service there is."""
        return self._services.keys()

    def service(self, key: ServiceKey) -> ServiceRecord | None:
        """The service as last seen; None: it is gone."""
        records = self._services.of(key)
        return max(records, key=lambda record: record.version) if records else None

    def forget(self, key: ServiceKey) -> None:
        """The service is gone: drop what was remembered for its sake."""
        self._children.pop(key, None)
        self._conflicts.pop(key, None)

    async def scrape(self) -> tuple[int, int]:
        """Ask every running engine pod for its load; returns how many were asked and how many did not answer well."""
        targets = [
            Target(pod.uid, pod.ip)
            for pod in self._pods.all()
            if pod.ip and pod.facts and pod.facts.phase in (Phase.STARTING, Phase.READY, Phase.DRAINING)
        ]
        return len(targets), await self._scraper.scrape(targets)

    async def observe(self, service: ServiceRecord) -> ServiceObserved:
        """Everything seen about the service. Looks up children it does not know yet, which may raise a WorldError."""
        conflicts = await self._examine(service)
        key = service.key
        deployment = next((d for d in self._deployments.of(key) if not d.deleting), None)
        template = deployment.facts.template_hash if deployment else None
        pods = sorted(self._pods.of(key), key=lambda pod: pod.uid)
        terminations = sorted((t for pod in pods for t in pod.terminations), key=lambda t: -t.at)
        return ServiceObserved(
            deployment=deployment.facts if deployment else None,
            replicas=tuple(self._replica(pod.facts, pod, template) for pod in pods if pod.facts),
            ready_endpoint_uids=frozenset().union(*(piece.ready for piece in self._slices.of(key))),
            terminations=tuple(t.failure for t in terminations[:TERMINATIONS_KEPT]),
            conflicts=conflicts,
        )

    def deployment_annotations(self, key: ServiceKey) -> dict[str, str]:
        """The live Deployment's annotations, where the rendered template is kept; empty where there is none."""
        deployment = next((d for d in self._deployments.of(key) if not d.deleting), None)
        return deployment.annotations if deployment else {}

    def _replica(self, facts: ReplicaFacts, pod: PodRecord, template: str | None) -> ReplicaFacts:
        reading = self._scraper.reading(pod.uid)
        current = pod.template_hash == template
        if reading is None:
            return replace(facts, current=current)
        load = reading.load
        drained = load is not None and load.state == "draining" and reading.error is None
        return replace(
            facts,
            current=current,
            phase=Phase.DRAINING if drained and facts.phase is not Phase.FAILED else facts.phase,
            load=load,
            load_age_s=self._clock() - reading.read_at if load else None,
            scrape_error=reading.error,
        )

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

    # Writing

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
        except RetryLater:
            self._children.get(key, {}).pop(name, None)
            raise
        if CHILDREN[name] is Kind.DEPLOYMENT:
            self._deployments.see(live)
        meta = live["metadata"]
        generation = int(meta.get("generation", 0))
        self._children.setdefault(key, {})[name] = Child(meta["uid"], digest, generation, self._clock())
        return True

    async def write_status(self, service: ServiceRecord, status: Manifest) -> None:
        """Server-side apply of the whole status, and of nothing else."""
        kind = Kind.INFERENCE_SERVICE
        body = {
            "apiVersion": kind.api_version,
            "kind": "InferenceService",
            "metadata": {"name": service.key.name, "namespace": service.key.namespace, "uid": service.uid},
            "status": dict(status),
        }
        self._services.see(await self._write("patch", kind, service.key, body, APPLY, subresource="status"))

    async def tell(self, service: ServiceRecord, *, warning: bool, reason: str, message: str) -> None:
        """An event about the service."""
        now = datetime.now(UTC)
        body = {
            "apiVersion": Kind.EVENT.api_version,
            "kind": "Event",
            "metadata": {"generateName": f"{service.key.name[:40]}.", "namespace": service.key.namespace},
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
        self._pods.see(live)

    def _stale(self, key: ServiceKey, name: str, child: Child) -> bool:
        if CHILDREN[name] is not Kind.DEPLOYMENT:
            return self._clock() - child.sent_at > RESEND_AFTER_S
        return not any(d.uid == child.uid and d.facts.generation == child.generation for d in self._deployments.of(key))

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


__all__ = ["Cluster", "ServiceRecord", "WorldError", "owner_of"]
