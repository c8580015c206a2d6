"""What would make the number of replicas another one: by the load, by the spec, by whoever decides."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate_operator.decide.scaling_policy import Mode, ScalingPolicy
from tidegate_operator.resource import InferenceServiceSpec, InferenceServiceStatus, ScalingStatus, format_duration


def levers(
    spec: InferenceServiceSpec, policy: ScalingPolicy, status: InferenceServiceStatus, scaling: ScalingStatus
) -> Iterator[str]:
    """One sentence each; `policy` has the bounds of this moment."""
    if policy.paused:
        yield "spec.paused: false lets the operator act again"
        return
    if policy.mode is Mode.FIXED:
        yield "spec.replicas; or spec.scaling in its place, and the number follows the load"
        return
    if policy.mode is Mode.EXTERNAL:
        yield "whoever writes the scale subresource: an HPA or KEDA that reads tidegate_service_desired_replicas"
    if policy.mode is Mode.ADVISORY:
        yield "spec.replicas; with scaling.mode auto and no replicas, the number that Tidegate would choose"
    for limit in scaling.limited_by:
        yield f"limited by {limit}: {_remedy(limit, spec, policy, scaling)}"
    yield from _by_data(scaling)
    yield from _by_load(policy, status, scaling)


def _remedy(limit: str, spec: InferenceServiceSpec, policy: ScalingPolicy, scaling: ScalingStatus) -> str:
    if limit == "budget" and policy.price is not None:
        return (
            f"spec.cost.maxPerHour {policy.price.max_per_hour:g} pays for {policy.maximum} replicas; raise it for more"
        )
    if limit.startswith("schedule "):
        return "it holds until the schedule ends; see spec.scaling.schedules"
    behavior = spec.scaling.behavior if spec.scaling else None
    if behavior is None:
        return "see spec.scaling"
    down, up = _down_window(policy, scaling), behavior.scale_up.stabilization_window_seconds
    where = "spec.scaling.behavior"
    return {
        "maxReplicas": f"spec.scaling.maxReplicas {policy.maximum}; raise it for more",
        "minReplicas": f"spec.scaling.minReplicas {policy.minimum}; lower it for fewer",
        "scaleDownWindow": f"fewer must have been enough for {down} ({where}.scaleDown.stabilizationWindowSeconds)",
        "scaleUpWindow": f"more must have been wanted for {up} s ({where}.scaleUp.stabilizationWindowSeconds)",
        "scaleDownRate": f"as many as {where}.scaleDown.policies allow were taken away lately",
        "scaleUpRate": f"as many as {where}.scaleUp.policies allow were added lately",
        "scaleDownDisabled": f"{where}.scaleDown.selectPolicy is Disabled",
        "scaleUpDisabled": f"{where}.scaleUp.selectPolicy is Disabled",
    }.get(limit, "see spec.scaling")


def _by_data(scaling: ScalingStatus) -> Iterator[str]:
    state = scaling.data_state
    if state in ("Partial", "Stale", "Missing"):
        yield f"data {state}: the number does not fall until every ready replica answers; MetricsAvailable says which"
    elif state == "Stalled":
        yield "data Stalled: a replica that has work and takes no step; once it does, or is restarted, it counts again"
    elif state == "NoReplicas":
        yield "data NoReplicas: no replica is ready; Ready and Stalled say what they wait for"


def _by_load(policy: ScalingPolicy, status: InferenceServiceStatus, scaling: ScalingStatus) -> Iterator[str]:
    ready = max(1, status.ready_replicas or 0)
    each = f"{policy.queue_depth:g} for each of {ready} ready"
    yield f"more: over {policy.queue_depth * ready:g} requests waiting ({each}), if they need more replicas"
    for target in policy.targets:
        yield f"more: surely over 1 % of requests above the {target.metric.value.upper()} target of " + (
            f"{format_duration(target.seconds)}, while more replicas help"
        )
    window = f" for {_down_window(policy, scaling)}" if policy.down.window_s else ""
    yield f"fewer: one replica fewer is predicted to hold the targets{window}"


def _down_window(policy: ScalingPolicy, scaling: ScalingStatus) -> str:
    """As it was at the last decision, where the user leaves it to how evenly requests arrive."""
    seen = [term.inputs["downWindowSeconds"] for term in scaling.terms if "downWindowSeconds" in term.inputs]
    return f"{seen[0] if seen and policy.down.evenly_s is not None else policy.down.window_s:.0f} s"
