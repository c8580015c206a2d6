"""The loop: time passes, pods are scraped, the policy looks and chooses, the Deployment follows."""

from __future__ import annotations

import math

from tidegate_operator.observed import Phase

from tidegate_lab.simulate.fleet import Fleet
from tidegate_lab.simulate.observer import Observer
from tidegate_lab.simulate.outcome import Moment, Outcome
from tidegate_lab.simulate.policy import Policy
from tidegate_lab.simulate.scenario import EPOCH, Mode, Scenario, ScenarioError
from tidegate_lab.simulate.servers import Servers


def simulate(scenario: Scenario, policy: Policy) -> Outcome:
    """Run the scenario to its end; the policy must be new. Raises ScenarioError."""
    if scenario.scrape_interval_s <= 0 or policy.interval_s <= 0:
        raise ScenarioError("scrape_interval_s and the policy's interval_s must be over 0")
    if not 0 <= scenario.scrape_delay_s < scenario.scrape_interval_s:
        raise ScenarioError(f"scrape_delay_s {scenario.scrape_delay_s}: must be 0 or more, and under scrape_interval_s")
    servers = _servers(scenario)
    fleet = Fleet(scenario, servers)
    observer = Observer(scenario, fleet, servers, policy.wants_sketches)
    moments: list[Moment] = []
    end, requests = scenario.trace.seconds, len(scenario.trace)
    looks = scrapes = arrived = 0
    while True:
        looks += 1
        at = looks * policy.interval_s
        if at >= end and (at > end + scenario.settle_s or _done(fleet, servers, requests)):
            break
        last = math.floor(at / scenario.scrape_interval_s + 1e-9)
        if not scenario.faults:
            # Reports are cumulative: of those between two looks only the newest is ever used.
            scrapes = max(scrapes, last - 1)
        while scrapes < last:
            scrapes += 1
            fleet.advance(scrapes * scenario.scrape_interval_s - scenario.scrape_delay_s)
            observer.scrape()
        fleet.advance(at)
        choice = policy.choose(observer.observe(), EPOCH + at)
        if at < end:
            phases = [pod.phase for pod in fleet.pods]
            running, waiting = servers.totals()
            moments.append(
                Moment(
                    at=at,
                    choice=choice,
                    before=fleet.wanted,
                    ready=phases.count(Phase.READY),
                    starting=len(phases) - phases.count(Phase.READY) - phases.count(Phase.DRAINING),
                    draining=phases.count(Phase.DRAINING),
                    running=running,
                    waiting=waiting + servers.held,
                    arrived=servers.arrived - arrived,
                )
            )
            arrived = servers.arrived
        fleet.scale(choice.replicas)
    fleet.advance(max(fleet.now, min(at, end + scenario.settle_s)))
    total = servers.grand_total()
    first, finished = servers.times()
    return Outcome(
        scenario=scenario,
        policy=policy.name,
        first_token_at=first,
        finished_at=finished,
        moments=tuple(moments),
        pod_seconds=fleet.paid_seconds(),
        refused=total.rejected,
        lost=fleet.lost,
        preemptions=total.preemptions,
    )


def _servers(scenario: Scenario) -> Servers:
    # Here, since numba takes a second to import, which no other verb of `tidegate` need wait for.
    from tidegate_lab.simulate.leap import LeapServers
    from tidegate_lab.simulate.stepwise import StepwiseServers

    return StepwiseServers(scenario) if scenario.mode is Mode.EXACT else LeapServers(scenario)


def _done(fleet: Fleet, servers: Servers, requests: int) -> bool:
    return servers.arrived == requests and not sum(servers.totals()) + servers.held
