"""Policies as people name them: ours, a rival with its published setting or another, or a fixed number."""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate_lab.scaling_bench.contestants import CONTESTANTS, OURS
from tidegate_lab.simulate.ours import Ours
from tidegate_lab.simulate.policies.plans import Static
from tidegate_lab.simulate.policies.told import Told
from tidegate_lab.simulate.policy import Policy
from tidegate_lab.simulate.scenario import Scenario
from tidegate_lab.what_if.service_file import Service

_FIXED = "static"
NAMES = tuple(CONTESTANTS)


class PolicyError(ValueError):
    """It names no policy; the message is one line."""


def policy_named(text: str, scenario: Scenario, service: Service) -> Policy:
    """`NAME` or `NAME=SETTING`. Raises PolicyError."""
    name, _, said = text.partition("=")
    contestant = CONTESTANTS.get(name)
    if contestant is None:
        raise PolicyError(f"policy {text!r}: is not known; the names are {', '.join(NAMES)}")
    meaning = "replicas" if name == _FIXED else contestant.setting
    try:
        setting = float(said) if said else None
    except ValueError:
        setting = math.nan
    if setting is not None and not (0 < setting < math.inf or (name == _FIXED and setting == 0)):
        raise PolicyError(f"policy {text!r}: give {name}=NUMBER above 0, {meaning}")
    if name == OURS:
        if setting is not None:
            raise PolicyError(f"policy {text!r}: takes its settings from the service's file")
        return Ours(policy=service.policy, interval_s=scenario.scrape_interval_s)
    if name == _FIXED:
        replicas = scenario.maximum if setting is None else round(setting)
        told = replace(Told.of(scenario), minimum=0, maximum=max(replicas, scenario.maximum))
        return Static(told, replicas)
    return contestant.make(scenario, None, contestant.default if setting is None else setting)
