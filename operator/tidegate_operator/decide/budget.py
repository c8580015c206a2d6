"""The budget: how many replicas may be paid for."""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate_operator.decide.scaling_policy import Price, ScalingPolicy

BUDGET = "budget"
_MORE_THAN_ANYBODY_HAS = 1e6


def affordable(price: Price) -> int | None:
    """The most replicas that cost no more than `max_per_hour`; None: nothing limits them."""
    if price.max_per_hour is None or price.per_replica_hour <= 0:
        return None
    # 0.3 an hour pays for 3 replicas at 0.1, whatever binary fractions make of it.
    return math.floor(round(min(price.max_per_hour / price.per_replica_hour, _MORE_THAN_ANYBODY_HAS), 9))


def within_budget(policy: ScalingPolicy) -> ScalingPolicy:
    """The policy with no more replicas than the budget pays for, but never fewer than the minimum."""
    most = affordable(policy.price) if policy.price else None
    if most is None or most >= policy.maximum:
        return policy
    return replace(policy, maximum=max(most, policy.minimum), maximum_by=BUDGET)
