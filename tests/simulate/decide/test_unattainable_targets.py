"""Targets that no number of replicas reaches, on replicas that publish what their steps take (fault 17)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from faulty_services import TALK, numbers, service
from tidegate_lab.simulate.ours import ours_for
from tidegate_lab.simulate.outcome import Outcome
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import Targets
from tidegate_lab.traffic.synthetic import constant

REACHED = Targets(ttft_s=2.0, tpot_s=0.1)


@cache
def under(targets: Targets) -> Outcome:
    scenario = replace(service(constant("constant", 10.0, 2400, TALK, seed=3), first=1, minimum=1), targets=targets)
    scenario = replace(scenario, maximum=60)
    return simulate(scenario, ours_for(scenario))


UNREACHABLE = [
    pytest.param(Targets(ttft_s=2.0, tpot_s=0.010), id="TPOT under what an empty step takes"),
    pytest.param(Targets(ttft_s=2.0, tpot_s=0.020), id="TPOT that an empty step takes"),
    pytest.param(Targets(ttft_s=0.010, tpot_s=0.1), id="TTFT under what a prompt takes"),
    pytest.param(Targets(ttft_s=0.010, tpot_s=None), id="TTFT under what a prompt takes, and none for TPOT"),
    pytest.param(Targets(ttft_s=0.010, tpot_s=0.010), id="both"),
    pytest.param(Targets(ttft_s=2.0, tpot_s=0.1, e2e_s=0.5), id="end to end under what an answer takes"),
]


@pytest.mark.parametrize("targets", UNREACHABLE)
def test_it_is_not_paid_for(targets: Targets) -> None:
    needed = max(numbers(under(REACHED)).values())
    assert max(numbers(under(targets)).values()) <= max(needed + 2, 1.5 * needed), "two steps that did not help"
    assert under(targets).replica_hours <= 1.3 * under(REACHED).replica_hours


@pytest.mark.parametrize("targets", UNREACHABLE)
def test_nothing_goes_back_and_forth(targets: Targets) -> None:
    steps = [m.choice.replicas - m.before for m in under(targets).moments if m.choice.replicas != m.before]
    assert sum((a > 0) != (b > 0) for a, b in pairwise(steps)) <= 1


@pytest.mark.parametrize("targets", UNREACHABLE)
def test_it_is_said(targets: Targets) -> None:
    assert "SLOUnattainable" in {m.choice.reason for m in under(targets).moments}
