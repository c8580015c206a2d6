"""Why no replica answers, or why some do not, gravest cause first, in Kubernetes' own words where it has some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate_operator.observed import ContainerFailure, Phase, ReplicaFacts, ServiceObserved

IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason in CamelCase, one sentence."""

    reason: str
    message: str
    needs_a_person: bool = False
    """Waiting will not mend it."""
    model: bool = False
    """It is about the model itself."""


def causes(observed: ServiceObserved) -> Iterator[Cause]:
    """What is wrong now, gravest first; nothing where pods are merely starting."""
    current = [r for r in observed.replicas if r.current and r.phase is not Phase.DRAINING]
    for conflict in observed.conflicts:
        message = (
            f"{conflict.kind} {conflict.name} exists and belongs to {conflict.owner}; it is not touched. "
            "Rename this InferenceService or remove that object"
        )
        yield Cause(reason="ChildConflict", message=message, needs_a_person=True)
    deployment = observed.deployment
    failure = deployment.replica_failure if deployment else None
    if failure and failure.status == "True":
        yield Cause(reason="PodsRefused", message=failure.message or failure.reason)
    failed = [(r, r.failure) for r in current if r.failure is not None and r.phase is not Phase.READY]
    for replica, told in sorted(failed, key=lambda pair: _gravity(pair[1])):
        yield _of_container(replica.name, told)
    if not failed and current and not any(r.phase is Phase.READY for r in current):
        for told in observed.terminations[:1]:
            yield _of_container(current[0].name, told)
    for replica in current:
        if replica.unschedulable is not None and replica.scheduled_at is None:
            yield Cause(reason="Unschedulable", message=f"pod {replica.name} waits for a node: {replica.unschedulable}")
    progressing = deployment.progressing if deployment else None
    if progressing and progressing.reason == "ProgressDeadlineExceeded":
        yield Cause(reason="ProgressDeadlineExceeded", message=progressing.message, needs_a_person=True)


def _gravity(failure: ContainerFailure) -> int:
    return 0 if failure.exit_code in (2, 3) else 1


def _of_container(pod: str, failure: ContainerFailure) -> Cause:
    said = failure.message.strip() or failure.reason
    if failure.reason in IMAGE_REASONS:
        return Cause(reason="ImagePullFailed", message=f"pod {pod}: {failure.reason}: {said}")
    if failure.exit_code == 3:
        return Cause(reason="ModelFailed", message=said, needs_a_person=True, model=True)
    if failure.exit_code == 2:
        return Cause(reason="EngineRefused", message=said, needs_a_person=True)
    if failure.reason == "OOMKilled" or failure.exit_code == 137:
        message = f"pod {pod} was killed (exit code 137), most likely for memory: raise resources.limits.memory"
        return Cause(reason="OutOfMemory", message=message)
    if failure.exit_code == 4:
        return Cause(reason="EngineDied", message=f"pod {pod}: {said}")
    code = "" if failure.exit_code is None else f" (exit code {failure.exit_code})"
    reason = "CrashLoop" if failure.reason in ("CrashLoopBackOff", "Error") else failure.reason or "CrashLoop"
    return Cause(reason=reason, message=f"pod {pod}{code}: {said}")


def answers(replica: ReplicaFacts, observed: ServiceObserved) -> bool:
    """An endpoint of the current template that said it is ready."""
    ready = replica.current and replica.phase is Phase.READY and replica.uid in observed.ready_endpoint_uids
    return ready and replica.load is not None and replica.load.state == "ready"
