"""Which bounds hold now, and saying so where one of them chose the number: schedules and the budget."""

from __future__ import annotations

from dataclasses import replace

from tidegate_operator.decide.budget import BUDGET, affordable, within_budget
from tidegate_operator.decide.scaling_limits import Limited
from tidegate_operator.decide.scaling_policy import Mode, ScalingPolicy
from tidegate_operator.decide.scaling_terms import Term, Wish
from tidegate_operator.decide.schedule import scheduled

SCHEDULE = "schedule"


def bounded(policy: ScalingPolicy, cold_start_s: float, now: float) -> ScalingPolicy:
    """The policy with the bounds of this moment; a fixed number has none."""
    if policy.mode is Mode.FIXED:
        return policy
    return within_budget(scheduled(policy, cold_start_s, now))


def named(wish: Wish, limited: Limited, policy: ScalingPolicy) -> Wish:
    """The wish as it is told: where a schedule raised the number, that is the reason, not the low load."""
    by_schedule = policy.minimum_by.startswith(SCHEDULE) and policy.minimum_by in limited.by
    if not by_schedule or limited.replicas != policy.minimum:
        return wish
    message = f"{policy.minimum_by} asks for {policy.minimum} at least; {wish.message}"
    return replace(wish, term=SCHEDULE, reason="Scheduled", message=message)


def bounds_terms(policy: ScalingPolicy) -> tuple[Term, ...]:
    """What the bounds that are not plain numbers of the spec ask for, for the status."""
    terms = []
    if policy.minimum_by.startswith(SCHEDULE):
        message = f"{policy.minimum_by} asks for {policy.minimum} at least"
        terms.append(Term(name=SCHEDULE, replicas=policy.minimum, message=message))
    most = affordable(policy.price) if policy.price and policy.mode is not Mode.FIXED else None
    if policy.price and policy.price.max_per_hour is not None and most is not None:
        price = policy.price
        message = f"{price.max_per_hour:g} an hour pays for {most} replicas at {price.per_replica_hour:g}"
        inputs = {"perReplicaHour": price.per_replica_hour, "maxPerHour": policy.price.max_per_hour}
        terms.append(Term(name=BUDGET, replicas=most, message=message, inputs=inputs))
    return tuple(terms)
