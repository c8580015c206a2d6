"""Bounds that cannot hold together: what the API server would refuse is not simulated as if it had been applied.

The rules and words are the CRD's own, of those that bear on the number of replicas (CEL needs a server to run it).
"""

from __future__ import annotations

from tidegate_operator.decide.budget import affordable
from tidegate_operator.decide.scaling_policy import ScalingPolicy
from tidegate_operator.resource import InferenceServiceSpec
from tidegate_operator.resource.scaling import Scaling


def contradiction(spec: InferenceServiceSpec, policy: ScalingPolicy) -> str | None:
    """The first of them: field, value and remedy. None: there is none."""
    scaling = spec.scaling
    if scaling is None:
        return None
    if spec.replicas is not None and scaling.mode == "auto":
        return (
            f"spec.replicas: {spec.replicas} cannot stand beside spec.scaling, which chooses the number; leave out one "
            "of the two, or set scaling.mode to advisory or external"
        )
    if scaling.max_replicas is None:
        return None if scaling.mode == "external" else "spec.scaling.maxReplicas: set the most replicas that may run"
    if scaling.min_replicas > scaling.max_replicas:
        return (
            f"spec.scaling.minReplicas: {scaling.min_replicas} is more than maxReplicas {scaling.max_replicas}; lower "
            "the one or raise the other"
        )
    return _of_schedules(scaling, scaling.max_replicas) or _of_budget(policy)


def _of_schedules(scaling: Scaling, most: int) -> str | None:
    for schedule in scaling.schedules:
        least = schedule.min_replicas or 0
        if schedule.max_replicas is None and least > most:
            return (
                f"spec.scaling.schedules: the minReplicas of schedule {schedule.name} is more than maxReplicas {most}; "
                "raise the latter, or give the schedule a maxReplicas of its own"
            )
        if schedule.max_replicas is not None and schedule.max_replicas < max(least, scaling.min_replicas):
            return (
                f"spec.scaling.schedules: the maxReplicas of schedule {schedule.name} is less than minReplicas "
                f"{max(least, scaling.min_replicas)}; lower the latter, or raise the former"
            )
    return None


def _of_budget(policy: ScalingPolicy) -> str | None:
    most = affordable(policy.price) if policy.price else None
    if most is None or policy.price is None:
        return None
    needed = {"": policy.minimum} | {f" of schedule {s.name}": s.minimum for s in policy.schedules if s.minimum}
    for whose, least in needed.items():
        if least > most:
            return (
                f"spec.cost.maxPerHour: {policy.price.max_per_hour:g} an hour does not pay for the minReplicas{whose}, "
                f"{least} at {policy.price.per_replica_hour:g} each; raise the budget or lower minReplicas"
            )
    return None
