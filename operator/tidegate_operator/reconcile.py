"""One look at one service, read aloud: observe, decide, apply, report. Law: no kopf; the clock is read once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError

from tidegate_operator.decide.manifests import Owner, children
from tidegate_operator.decide.pod_template import Template, next_template
from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_spec import learned_from, policy_of
from tidegate_operator.decide.scaling_victims import deletion_costs
from tidegate_operator.decide.status import Subject, is_write_due, report, report_refused
from tidegate_operator.decide.status_conditions import Findings
from tidegate_operator.decide.status_diagnosis import Cause
from tidegate_operator.errors import Stall, WorldError
from tidegate_operator.observed import ServiceKey, ServiceObserved
from tidegate_operator.resource import (
    Condition,
    InferenceServiceSpec,
    InferenceServiceStatus,
    UnreadableSpec,
    read_spec,
    read_status,
)
from tidegate_operator.world.cluster import Cluster
from tidegate_operator.world.objects import ServiceRecord

log = logging.getLogger("tidegate.operator")


ON_THE_WAY = frozenset({"Creating", "Starting", "RollingOut", "NotAnswering"})
"""Reasons for not being ready that need nobody's attention."""


class Counted(Protocol):
    """Told of every change of a number of replicas."""

    def __call__(self, direction: str) -> None: ...


class Shown(Protocol):
    """Told how a service stands at every look; None: it is gone."""

    def __call__(self, key: ServiceKey, status: InferenceServiceStatus | None) -> None: ...


@dataclass(slots=True)
class Kept:
    """What this process remembers of one object between two looks."""

    uid: str
    memory: Memory
    written_at: float | None = None
    """When its status was last written from here, seconds since the epoch."""


@dataclass(slots=True)
class Reconciler:
    """Makes the cluster match each service, and says how it stands."""

    cluster: Cluster
    engine_image: str
    """For services that name none; those that run keep theirs until their spec changes."""
    operator_namespace: str
    """Whose pods may reach the engines' admin port."""
    clock: Callable[[], float]
    scaled: Counted
    shown: Shown
    _kept: dict[ServiceKey, Kept] = field(default_factory=dict)

    async def reconcile(self, key: ServiceKey) -> None:
        """Observe, decide, apply, report. Raises a WorldError that says when to look again."""
        service = self.cluster.view.service(key)
        if service is None or service.deleting:
            self._kept.pop(key, None)
            self.cluster.forget(key)
            self.shown(key, None)
            return
        now = self.clock()
        previous = _status_of(service)
        kept = self._memory_of(service, previous)
        try:
            spec = read_spec(service.spec)
        except UnreadableSpec as error:
            cause = Cause(reason="UnreadableSpec", message=str(error), needs_a_person=True)
            await self._report(service, previous, report_refused(service.generation, previous, cause, now), kept, now)
            return

        observed = await self.cluster.observe(service)
        policy = policy_of(spec)
        decision = decide(policy, observed, kept.memory, now)
        live = self.cluster.view.deployment(key)
        template = next_template(key.name, spec, self.engine_image, live.annotations if live else None)
        trouble = None
        if not (spec.paused or observed.conflicts):
            trouble = await self._apply(service, spec, template, observed, decision)
        kept.memory = decision.memory
        findings = Findings(
            policy=policy,
            observed=self.cluster.view.facts(key, observed.conflicts),
            decision=decision,
            trouble=Cause(reason=trouble.reason, message=trouble.message, needs_a_person=True) if trouble else None,
            template_hash=template.spec_hash,
        )
        subject = Subject(key=key, generation=service.generation, previous=previous)
        status = report(subject, findings, now)
        self.shown(key, status)
        await self._report(service, previous, status, kept, now)
        if trouble is not None:
            raise trouble

    async def _apply(
        self,
        service: ServiceRecord,
        spec: InferenceServiceSpec,
        template: Template,
        observed: ServiceObserved,
        decision: Decision,
    ) -> Stall | None:
        """Write the children. What only a person can mend is returned, to be reported first."""
        live = observed.deployment.replicas if observed.deployment else None
        try:
            if live is not None and decision.replicas < live:
                await self._hint(service.key, observed)
            owner = Owner(key=service.key, uid=service.uid)
            for manifest in children(
                owner, spec, template, replicas=decision.replicas, operator_namespace=self.operator_namespace
            ):
                await self.cluster.apply(service, manifest)
        except Stall as error:
            return error
        if live is not None and decision.replicas != live:
            self.scaled("up" if decision.replicas > live else "down")
            await self._tell(service, reason=decision.reason, message=decision.message)
        return None

    async def _hint(self, key: ServiceKey, observed: ServiceObserved) -> None:
        """Before the number falls: which pods should go first."""
        known = {replica.uid: replica.deletion_cost for replica in observed.replicas}
        for wish in deletion_costs(observed.replicas):
            if known.get(wish.uid) != wish.cost:
                await self.cluster.set_deletion_cost(key, wish.name, wish.cost)

    async def _report(
        self,
        service: ServiceRecord,
        previous: InferenceServiceStatus,
        status: InferenceServiceStatus,
        kept: Kept,
        now: float,
    ) -> None:
        body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        # As it will be read back: figures are rounded for people, and only what they see may cause a write.
        if not is_write_due(previous, read_status(body), kept.written_at, now):
            return
        await self.cluster.write_status(service, body)
        kept.written_at = now
        before, after = _ready(previous), _ready(status)
        if after and (before is None or (before.status, before.reason) != (after.status, after.reason)):
            warning = after.status == "False" and after.reason not in ON_THE_WAY
            await self._tell(service, reason=after.reason, message=after.message, warning=warning)

    async def _tell(self, service: ServiceRecord, *, reason: str, message: str, warning: bool = False) -> None:
        """The same words to the log and to an event; an event that cannot be written is no reason to stop."""
        log.log(logging.WARNING if warning else logging.INFO, "%s/%s: %s: %s", *service.key, reason, message)
        try:
            await self.cluster.tell(service, warning=warning, reason=reason, message=message)
        except WorldError as error:
            log.warning("%s/%s: no event: %s", *service.key, error.message)

    def _memory_of(self, service: ServiceRecord, previous: InferenceServiceStatus) -> Kept:
        """The memory of this very object; a new process, or a new object of the name, begins from the status."""
        kept = self._kept.get(service.key)
        if kept is None or kept.uid != service.uid:
            kept = self._kept[service.key] = Kept(service.uid, Memory(learned=learned_from(previous)))
        return kept


def _status_of(service: ServiceRecord) -> InferenceServiceStatus:
    """The status as it stands; one that no operator wrote counts as none."""
    try:
        return read_status(service.status)
    except ValidationError:
        return InferenceServiceStatus()


def _ready(status: InferenceServiceStatus) -> Condition | None:
    return next((c for c in status.conditions if c.type == "Ready"), None)
