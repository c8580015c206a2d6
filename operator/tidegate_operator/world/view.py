"""What was last seen of the cluster, put together into facts about one service."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate_operator.observed import ChildConflict, Phase, ReplicaFacts, ServiceKey, ServiceObserved
from tidegate_operator.world.api import Api
from tidegate_operator.world.cache import Store
from tidegate_operator.world.calls import WATCHED, Kind
from tidegate_operator.world.objects import (
    DeploymentRecord,
    ServiceRecord,
    SliceRecord,
    read_deployment,
    read_service,
    read_slice,
)
from tidegate_operator.world.pods import SERVICE_LABEL, PodRecord, read_pod
from tidegate_operator.world.scrape import Asked, Scraper, Target

PAGE = 500
TERMINATIONS_KEPT = 5


class View:
    """The caches, fed by watch events and now and then by a list of everything."""

    def __init__(self, api: Api, scraper: Scraper, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._scraper, self._clock = api, scraper, clock
        self._services: Store[ServiceRecord] = Store(read_service)
        self._deployments: Store[DeploymentRecord] = Store(read_deployment)
        self._pods: Store[PodRecord] = Store(read_pod)
        self._slices: Store[SliceRecord] = Store(read_slice)

    def _store(self, kind: Kind) -> Store[Any]:
        stores: dict[Kind, Store[Any]] = {
            Kind.INFERENCE_SERVICE: self._services,
            Kind.DEPLOYMENT: self._deployments,
            Kind.POD: self._pods,
            Kind.ENDPOINT_SLICE: self._slices,
        }
        return stores[kind]

    def see(self, kind: Kind, body: dict[str, Any], *, deleted: bool) -> ServiceKey | None:
        """A watch event; returns the service that wants a look."""
        store = self._store(kind)
        return store.lose(body) if deleted else store.see(body)

    async def probe(self) -> None:
        """Whether everything may be listed that a refresh lists. Raises NotFound for the CRD, or a WorldError."""
        for kind in WATCHED:
            await self._api.request("list", kind, query={"limit": "1"})

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

    def service_keys(self) -> tuple[ServiceKey, ...]:
        """Every service there is."""
        return self._services.keys()

    def service(self, key: ServiceKey) -> ServiceRecord | None:
        """The service as last seen; None: it is gone."""
        records = self._services.of(key)
        return max(records, key=lambda record: record.version) if records else None

    def weights(self) -> dict[ServiceKey, int]:
        """Every service, and how many pods of it are to be read, plus one for the decision. Forgets all other pods."""
        weights: dict[ServiceKey, int] = {}
        kept: list[Target] = []
        for key in self.service_keys():
            targets = self._targets(key)
            kept += targets
            weights[key] = 1 + len(targets)
        self._scraper.keep(kept)
        return weights

    async def ask(self, key: ServiceKey) -> Asked:
        """Ask every running engine pod of the service for its load."""
        return await self._scraper.ask(self._targets(key))

    def _targets(self, key: ServiceKey) -> list[Target]:
        return [
            Target(pod.uid, pod.ip)
            for pod in self._pods.of(key)
            if pod.ip and pod.facts and pod.facts.phase in (Phase.STARTING, Phase.READY, Phase.DRAINING)
        ]

    def deployment(self, key: ServiceKey) -> DeploymentRecord | None:
        """The service's Deployment; None where there is none, or it is being deleted."""
        return next((d for d in self._deployments.of(key) if not d.deleting), None)

    def facts(self, key: ServiceKey, conflicts: tuple[ChildConflict, ...]) -> ServiceObserved:
        """Everything seen about the service."""
        deployment = self.deployment(key)
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

    def _replica(self, facts: ReplicaFacts, pod: PodRecord, template: str | None) -> ReplicaFacts:
        reading = self._scraper.reading(pod.uid)
        current = pod.template_hash == template
        if reading is None:
            return replace(facts, current=current)
        load = reading.load
        # A process that ends because it cannot start says so too; its failure is what matters then.
        drained = load is not None and load.state == "draining" and reading.error is None and facts.failure is None
        return replace(
            facts,
            current=current,
            phase=Phase.DRAINING if drained else facts.phase,
            load=load,
            load_age_s=self._clock() - reading.read_at if load else None,
            scrape_error=reading.error,
        )
