"""One look at one service, read aloud: observe, decide, apply, report. Law: no kopf; the clock is read once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import ValidationError

from tidegate_operator.decide.manifests import Owner, children
from tidegate_operator.decide.pod_template import Template, next_template
from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_memory import Memory
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.decide.scaling_spec import learned_from, policy_of
from tidegate_operator.decide.scaling_victims import deletion_costs
from tidegate_operator.decide.status import FIGURES_EVERY_S, Subject, is_write_due, report, report_refused
from tidegate_operator.decide.status_conditions import Findings
from tidegate_operator.decide.status_diagnosis import Cause
from tidegate_operator.errors import Stall, WorldError
from tidegate_operator.observed import ServiceKey, ServiceObserved
from tidegate_operator.pace import Pace
from tidegate_operator.resource import (
    Condition,
    InferenceServiceSpec,
    InferenceServiceStatus,
    UnreadableSpec,
    read_spec,
    read_status,
)
from tidegate_operator.world.cluster import Cluster, share_of
from tidegate_operator.world.objects import ServiceRecord

log = logging.getLogger("tidegate.operator")


STALE_AFTER_READS = 3
FIGURES_PER_S = 7.0
"""Statuses written for their figures only, of all services together; one takes 4 ms, its event included."""
ON_THE_WAY = frozenset({"Creating", "Starting", "RollingOut", "NotAnswering"})
"""Reasons for not being ready that need nobody's attention."""


class Counted(Protocol):
    """Told of every change of a number of replicas."""

    def __call__(self, direction: str) -> None: ...


class Shown(Protocol):
    """Told how a service stands at every look; None: it is gone."""

    def __call__(self, key: ServiceKey, status: InferenceServiceStatus | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A spec, and what it asks of scaling; read once for each generation."""

    generation: int
    spec: InferenceServiceSpec
    policy: ScalingPolicy


@dataclass(slots=True)
class Kept:
    """What this process remembers of one object between two looks."""

    uid: str
    memory: Memory
    written_at: float | None = None
    """When its status was last written from here, seconds since the epoch."""
    status: tuple[int, InferenceServiceStatus] | None = None
    """As last read, and at which version of the object."""
    asked: Asked | None = None
    """The spec as last read."""
    template: tuple[InferenceServiceSpec, Mapping[str, Any] | None, Template] | None = None
    """As last chosen, for which spec and the Deployment's annotations at that time."""
    applied: tuple[int, Template, int] | None = None
    """The generation, template and number of replicas that the children were last made from."""


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
    pace: Pace
    """At which pods are read."""
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
        kept, previous = self._kept_of(service)
        try:
            asked = _asked(service, kept)
        except UnreadableSpec as error:
            cause = Cause(reason="UnreadableSpec", message=str(error), needs_a_person=True)
            await self._report(service, previous, report_refused(service.generation, previous, cause, now), kept, now)
            return

        spec, policy = asked.spec, self._patient(asked.policy)
        observed = await self.cluster.observe(service)
        decision = decide(policy, observed, kept.memory, now)
        live = self.cluster.view.deployment(key)
        template = self._template(key, spec, kept, live.annotations if live else None)
        trouble, wanted, seen = None, (service.generation, template, decision.replicas), observed
        is_done = kept.applied == wanted and self.cluster.is_settled(key)
        if not (is_done or spec.paused or observed.conflicts):
            kept.applied = None
            trouble = await self._apply(service, spec, template, observed, decision)
            kept.applied = wanted if trouble is None else None
            seen = self.cluster.view.facts(key, observed.conflicts)
        kept.memory = decision.memory
        findings = Findings(
            policy=policy,
            observed=seen,
            decision=decision,
            trouble=Cause(reason=trouble.reason, message=trouble.message, needs_a_person=True) if trouble else None,
            template_hash=template.spec_hash,
            stretched_s=self.pace.interval if self.pace.is_stretched else None,
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
        every = max(FIGURES_EVERY_S, len(self._kept) / FIGURES_PER_S)
        if not is_write_due(previous, status, kept.written_at, now, every):
            return
        body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        # As it will be read back: figures are rounded for people, and only what they see may cause a write.
        if not is_write_due(previous, read_status(body), kept.written_at, now, every):
            return
        await self.cluster.write_status(service, body)
        # Many services start at once: their later writes, of figures only, are spread.
        kept.written_at = now if kept.written_at is not None else now - every * share_of(service.uid)
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

    def _patient(self, policy: ScalingPolicy) -> ScalingPolicy:
        """Data is not stale for having missed two reads, however far apart reads are."""
        needed = STALE_AFTER_READS * self.pace.interval
        return policy if policy.stale_after_s >= needed else replace(policy, stale_after_s=needed)

    def _kept_of(self, service: ServiceRecord) -> tuple[Kept, InferenceServiceStatus]:
        """What is kept of this very object, and its status; a new process, or a new object of the name, begins from
        the status."""
        kept = self._kept.get(service.key)
        if kept is not None and kept.uid == service.uid and kept.status and kept.status[0] == service.version:
            return kept, kept.status[1]
        status = _status_of(service)
        if kept is None or kept.uid != service.uid:
            kept = self._kept[service.key] = Kept(service.uid, Memory(learned=learned_from(status)))
        kept.status = (service.version, status)
        return kept, status

    def _template(
        self, key: ServiceKey, spec: InferenceServiceSpec, kept: Kept, live: Mapping[str, Any] | None
    ) -> Template:
        """The same object as long as nothing it is chosen from has changed."""
        if kept.template is None or kept.template[0] is not spec or kept.template[1] is not live:
            kept.template = (spec, live, next_template(key.name, spec, self.engine_image, live))
        return kept.template[2]


def _asked(service: ServiceRecord, kept: Kept) -> Asked:
    if kept.asked is None or kept.asked.generation != service.generation:
        spec = read_spec(service.spec)
        kept.asked = Asked(service.generation, spec, policy_of(spec))
    return kept.asked


def _status_of(service: ServiceRecord) -> InferenceServiceStatus:
    """The status as it stands; one that no operator wrote counts as none."""
    try:
        return read_status(service.status)
    except ValidationError:
        return InferenceServiceStatus()


def _ready(status: InferenceServiceStatus) -> Condition | None:
    return next((c for c in status.conditions if c.type == "Ready"), None)
