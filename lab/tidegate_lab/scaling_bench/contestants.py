"""Who takes part, and over which values of its one main setting a curve is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate_lab.scaling_bench.ground import Ground
from tidegate_lab.simulate.ours import ours_for
from tidegate_lab.simulate.policies.aibrix import Aibrix
from tidegate_lab.simulate.policies.dynamo import DynamoLoad, DynamoSla
from tidegate_lab.simulate.policies.hpa_policies import HpaConcurrency, KedaQueue
from tidegate_lab.simulate.policies.knative import Knative
from tidegate_lab.simulate.policies.kubeai import KubeAI
from tidegate_lab.simulate.policies.llmd_saturation import LlmdSaturation
from tidegate_lab.simulate.policies.llmd_slo import LlmdSlo
from tidegate_lab.simulate.policies.plans import Static
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Policy
from tidegate_lab.simulate.scenario import Scenario

OURS = "tidegate"
SIMULATE = "tidegate_lab.simulate."
POLICIES = SIMULATE + "policies."


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A law, its main setting in words, the values tried, and the one it is published with."""

    name: str
    setting: str
    values: tuple[float, ...]
    default: float
    make: Callable[[Scenario, Ground | None, float], Policy]
    """None for the ground: outside the bench, where no oracle has run and only `static` would need one."""
    module: str
    """What its law lies in; a change there makes its kept runs worthless, and only its."""

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(f"{self.name}: the default {self.default:g} is not among the values {self.values}")


def _rival(law: Callable[[Told, float], Policy]) -> Callable[[Scenario, Ground | None, float], Policy]:
    return lambda scenario, ground, setting: law(Told.of(scenario), setting)


def _share_of_peak(scenario: Scenario, ground: Ground | None, setting: float) -> Policy:
    if ground is None:
        raise ValueError("a share of the oracle's peak needs an oracle that has run")
    return Static(Told.of(scenario), round(setting * ground.oracle_peak))


def _ours(scenario: Scenario, ground: Ground | None, setting: float) -> Policy:
    return ours_for(scenario, headroom_percent=round(setting))


# fmt: off
CONTESTANTS = {c.name: c for c in (
    Contestant(name=OURS, setting="headroomPercent", values=(-30, -15, 0, 10, 25, 50, 100), default=10,
               make=_ours, module=SIMULATE + "ours"),
    Contestant(name="keda-queue", setting="waiting requests a replica", values=(1, 2, 5, 10, 20, 50), default=5,
               make=_rival(KedaQueue), module=POLICIES + "hpa_policies"),
    Contestant(name="hpa-concurrency", setting="requests in a replica", values=(3, 6, 10, 16, 24, 32), default=16,
               make=_rival(HpaConcurrency), module=POLICIES + "hpa_policies"),
    Contestant(name="knative-kpa", setting="concurrency of a replica", values=(5, 10, 15, 25, 40, 100), default=100,
               make=_rival(Knative), module=POLICIES + "knative"),
    Contestant(name="kubeai", setting="active requests a replica", values=(3, 6, 10, 16, 30, 100), default=100,
               make=_rival(KubeAI), module=POLICIES + "kubeai"),
    Contestant(name="aibrix-apa", setting="share of the KV cache", values=(0.15, 0.25, 0.35, 0.5, 0.65, 0.8),
               default=0.5, make=_rival(Aibrix), module=POLICIES + "aibrix"),
    Contestant(name="llmd-slo", setting="upper threshold", values=(0.2, 0.3, 0.4, 0.55, 0.75, 1.0), default=0.55,
               make=_rival(LlmdSlo), module=POLICIES + "llmd_slo"),
    Contestant(name="llmd-saturation", setting="upper threshold", values=(0.25, 0.4, 0.55, 0.7, 0.85, 0.95),
               default=0.85, make=_rival(LlmdSaturation), module=POLICIES + "llmd_saturation"),
    Contestant(name="dynamo-load", setting="upper share of the KV cache", values=(0.2, 0.4, 0.6, 0.8, 1.0, 1.3),
               default=1.0, make=_rival(DynamoLoad), module=POLICIES + "dynamo"),
    Contestant(name="dynamo-sla", setting="sensitivity", values=(0.2, 0.35, 0.5, 0.65, 0.8, 1.0), default=0.8,
               make=_rival(DynamoSla), module=POLICIES + "dynamo"),
    Contestant(name="static", setting="share of the oracle's peak", values=(0.4, 0.55, 0.7, 0.85, 1.0, 1.2),
               default=1.0, make=_share_of_peak, module=POLICIES + "plans"),
)}
# fmt: on
