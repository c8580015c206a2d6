"""The InferenceService as the operator reads and writes it. Law: the standard library and pydantic.

`crds/inferenceservice.yaml` is the source of truth; a contract test compares the two field by field. Reading is strict
where the operator would otherwise ignore what a user asked for (`spec`), lenient where an older or newer operator wrote
(`status`).
"""

from __future__ import annotations

from tidegate_operator.resource.cron import Cron, parse_cron
from tidegate_operator.resource.engine import Engine, Model, SecretKey, Source, Speculative, parse_source
from tidegate_operator.resource.pod import EnvVar, KeyRef, PodOverrides, Resources, Toleration, TopologySpread, Volume
from tidegate_operator.resource.quantity import format_duration, parse_duration, parse_quantity
from tidegate_operator.resource.scaling import (
    Behavior,
    Direction,
    LatencyTarget,
    Policy,
    ScaleDown,
    ScaleUp,
    Scaling,
    Schedule,
    Targets,
)
from tidegate_operator.resource.spec import Auth, Cost, Drain, InferenceServiceSpec, Rollout, UnreadableSpec, read_spec
from tidegate_operator.resource.status import (
    Change,
    Condition,
    CostStatus,
    InferenceServiceStatus,
    LatencyStatus,
    Learned,
    Percentiles,
    ScalingStatus,
    TermStatus,
    read_status,
)

__all__ = [
    "Auth",
    "Behavior",
    "Change",
    "Condition",
    "Cost",
    "CostStatus",
    "Cron",
    "Direction",
    "Drain",
    "Engine",
    "EnvVar",
    "InferenceServiceSpec",
    "InferenceServiceStatus",
    "KeyRef",
    "LatencyStatus",
    "LatencyTarget",
    "Learned",
    "Model",
    "Percentiles",
    "PodOverrides",
    "Policy",
    "Resources",
    "Rollout",
    "ScaleDown",
    "ScaleUp",
    "Scaling",
    "ScalingStatus",
    "Schedule",
    "SecretKey",
    "Source",
    "Speculative",
    "Targets",
    "TermStatus",
    "Toleration",
    "TopologySpread",
    "UnreadableSpec",
    "Volume",
    "format_duration",
    "parse_cron",
    "parse_duration",
    "parse_quantity",
    "parse_source",
    "read_spec",
    "read_status",
]
