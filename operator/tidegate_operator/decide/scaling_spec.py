"""From the object's own types to those the decision computes with, and back for what is kept in the status."""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate_operator import resource
from tidegate_operator.decide.capacity import HIGHEST_UTILISATION, LOWEST_UTILISATION
from tidegate_operator.decide.replica_model import Equipment, RequestSize
from tidegate_operator.decide.scaling_demand import LEAST_EFFICIENCY
from tidegate_operator.decide.scaling_memory import COLD_STARTS_KEPT, Learned
from tidegate_operator.decide.scaling_peaks import LONGEST_HOLD_S
from tidegate_operator.decide.scaling_policy import (
    ADAPTING_DOWN,
    Direction,
    LatencyTarget,
    Metric,
    Mode,
    Price,
    Rate,
    ScalingPolicy,
    Schedule,
)
from tidegate_operator.observed import StepModel

MOST_REPLICAS = 1000
"""The schema's own bound: in mode external the bounds are the autoscaler's."""


def policy_of(spec: resource.InferenceServiceSpec) -> ScalingPolicy:
    """What the spec asks of scaling, in numbers."""
    scaling = spec.scaling
    if scaling is None:
        replicas = 1 if spec.replicas is None else spec.replicas
        return ScalingPolicy(
            mode=Mode.FIXED,
            paused=spec.paused,
            replicas=replicas,
            minimum=replicas,
            maximum=replicas,
            slots=spec.engine.max_running_requests,
            price=_price(spec.cost),
        )
    targets = (
        (Metric.TTFT, scaling.targets.ttft),
        (Metric.TPOT, scaling.targets.tpot),
        (Metric.E2E, scaling.targets.e2e),
    )
    external = scaling.mode == "external"
    chosen = spec.replicas if spec.replicas is not None else max(1, scaling.min_replicas)
    return ScalingPolicy(
        mode=Mode(scaling.mode),
        paused=spec.paused,
        replicas=chosen,
        minimum=scaling.min_replicas,
        maximum=MOST_REPLICAS if scaling.max_replicas is None else scaling.max_replicas,
        schedules=tuple(_schedule(s) for s in scaling.schedules),
        price=_price(spec.cost),
        queue_depth=float(scaling.targets.queue_depth),
        headroom=scaling.headroom_percent / 100,
        targets=tuple(LatencyTarget(metric=m, seconds=t.p99) for m, t in targets if t is not None),
        scale_to_zero_after_s=scaling.scale_to_zero_after,
        # The autoscaler that acts has windows and rates of its own; two in a row would add up.
        up=Direction() if external else _up(scaling.behavior.scale_up),
        down=Direction() if external else _down(scaling.behavior.scale_down),
        slots=spec.engine.max_running_requests,
    )


def _price(cost: resource.Cost | None) -> Price | None:
    return None if cost is None else Price(per_replica_hour=cost.per_replica_hour, max_per_hour=cost.max_per_hour)


def _schedule(asked: resource.Schedule) -> Schedule:
    return Schedule(
        name=asked.name,
        cron=resource.parse_cron(asked.cron),
        time_zone=asked.time_zone,
        duration_s=asked.duration,
        minimum=asked.min_replicas,
        maximum=asked.max_replicas,
    )


def _up(asked: resource.ScaleUp) -> Direction:
    return _rated(Direction(window_s=float(asked.stabilization_window_seconds)), asked)


def _down(asked: resource.ScaleDown) -> Direction:
    window = asked.stabilization_window_seconds
    return _rated(ADAPTING_DOWN if window is None else Direction(window_s=float(window)), asked)


def _rated(direction: Direction, asked: resource.Direction) -> Direction:
    return replace(
        direction,
        rates=tuple(
            Rate(
                period_s=float(policy.period_seconds),
                pods=policy.value if policy.type == "Pods" else None,
                percent=policy.value if policy.type == "Percent" else None,
            )
            for policy in asked.policies
        ),
        strictest=asked.select_policy == "Min",
        disabled=asked.select_policy == "Disabled",
    )


def learned_from(status: resource.InferenceServiceStatus) -> Learned:
    """What an earlier operator learned. A value that cannot be true (somebody wrote it) is not taken."""
    kept = status.scaling.learned if status.scaling else None
    if kept is None:
        return Learned()
    cold_starts = tuple(s for s in kept.cold_starts_seconds if math.isfinite(s) and 0 < s <= 7200)
    safe = kept.safe_utilisation
    if safe is not None and not LOWEST_UTILISATION <= safe <= HIGHEST_UTILISATION:
        safe = None
    share = kept.p99_share
    return Learned(
        cold_starts_s=cold_starts[-COLD_STARTS_KEPT:],
        capacity=_positive(kept.capacity),
        tokens_per_request=_positive(kept.tokens_per_request),
        equipment=_equipment(kept),
        size=_size(kept.request_tokens),
        hold_s=min(LONGEST_HOLD_S, _positive(kept.hold_seconds) or 0.0),
        efficiency=min(1.0, max(LEAST_EFFICIENCY, _positive(kept.efficiency) or 1.0)),
        safe_utilisation=safe,
        safe_utilisation_at=_positive(kept.safe_utilisation_at) if safe is not None else None,
        newest_ready_at=_positive(kept.newest_ready_at) or 0.0,
        last_up_at=_positive(kept.last_up_at),
        last_change_at=_positive(kept.last_change_at),
        p99_steps=max(0, min(kept.p99_steps, 100)),
        p99_share=share if share is not None and 0 <= share <= 1 else None,
    )


def learned_to(learned: Learned) -> resource.Learned:
    """The same for the status, in as many digits as mean something."""
    equipment, size = learned.equipment, learned.size
    return resource.Learned(
        cold_starts_seconds=tuple(round(s, 1) for s in learned.cold_starts_s),
        capacity=_digits(learned.capacity),
        tokens_per_request=_digits(learned.tokens_per_request),
        step_seconds=_several(equipment.step.a, equipment.step.b, equipment.step.c) if equipment else (),
        slots=equipment.slots if equipment else None,
        kv_tokens=equipment.kv_tokens if equipment else None,
        request_tokens=_several(size.prompt_tokens, size.output_tokens, size.kv_tokens) if size else (),
        efficiency=None if learned.efficiency == 1 else float(f"{learned.efficiency:.3g}"),
        hold_seconds=round(learned.hold_s) if learned.hold_s else None,
        safe_utilisation=_digits(learned.safe_utilisation),
        safe_utilisation_at=learned.safe_utilisation_at,
        newest_ready_at=learned.newest_ready_at,
        last_up_at=learned.last_up_at,
        last_change_at=learned.last_change_at,
        p99_steps=learned.p99_steps,
        p99_share=_digits(learned.p99_share),
    )


def _equipment(kept: resource.Learned) -> Equipment | None:
    step = tuple(s for s in kept.step_seconds if math.isfinite(s) and 0 <= s < 1e4)
    if len(step) != 3 or not kept.slots or not 0 < kept.slots <= 1_000_000:
        return None
    kv_tokens = kept.kv_tokens if kept.kv_tokens and 0 < kept.kv_tokens < 2**53 else 0
    return Equipment(step=StepModel(a=step[0], b=step[1], c=step[2], error=0.0), slots=kept.slots, kv_tokens=kv_tokens)


def _size(tokens: tuple[float, ...]) -> RequestSize | None:
    known = tuple(t for t in tokens if math.isfinite(t) and 0 <= t < 1e9)
    if len(known) != 3:
        return None
    return RequestSize(prompt_tokens=known[0], output_tokens=max(1.0, known[1]), kv_tokens=known[2])


def _several(*values: float) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in values)


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and 0 < value < 1e11 else None


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
