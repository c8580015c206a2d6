"""What the operator is shown: reports as old as scrapes are, and every way in which they can lie or be missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_policy import Scripted, drawn_trace, fixed
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Fault, FaultKind, Scenario
from tidegate_operator.observed import LoadReport, read_load
from tidegate_operator.observed_load import StepModel as ReportedStepModel

ENGINE = EngineModel(name="small", step=StepModel(0.01, 0.0001, 1e-6), slots=8, kv_tokens=4096)
SCENARIO = Scenario(
    trace=drawn_trace(1, 600, 120.0, 50, 80), engine=ENGINE, cold_start=ColdStart(median_s=20.0), first_replicas=2
)


def shown(policy: Scripted, at: float, number: int = 0) -> LoadReport:
    load = policy.at(at).replicas[number].load
    assert load is not None
    return load


def test_a_report_is_as_old_as_the_scrape_and_adds_up() -> None:
    policy = fixed(2)
    outcome = simulate(SCENARIO, policy)
    pods = policy.at(120.0 - 5.0).replicas
    assert [pod.load_age_s for pod in pods] == pytest.approx([0.3, 0.3])
    loads = [pod.load for pod in pods if pod.load]
    arrived = int((SCENARIO.trace.at < 114.7).sum())
    finished = int((outcome.finished_at <= 114.7).sum())
    assert sum(load.counters.received for load in loads) == arrived
    assert sum(load.counters.finished for load in loads) == finished
    assert sum(load.running + load.waiting for load in loads) == arrived - finished
    assert sum(load.sketches.e2e.count for load in loads) == finished
    assert sum(load.sketches.ttft.count for load in loads) == int((outcome.first_token_at <= 114.7).sum())
    assert sum(load.waiting for load in loads) == sum(load.waiting_ages.count for load in loads)
    assert loads[0].step_model == ReportedStepModel(a=0.01, b=0.0001, c=1e-6, error=0.0)
    assert 0 < loads[0].kv_blocks.used < loads[0].kv_blocks.total == 256
    assert loads[0].slots == 8


def test_the_operators_reader_would_read_the_same_from_the_wire() -> None:
    policy = Scripted(plan=((0.0, 2), (30.0, 3)))
    simulate(SCENARIO, policy)
    for load in (shown(policy, 100.0), shown(policy, 35.0, 2)):
        wire = load.model_dump()
        for sketch in ("waiting_ages", "running_tpot"):
            wire[sketch] = on_the_wire(getattr(load, sketch))
        wire["sketches"] = {name: on_the_wire(getattr(load.sketches, name)) for name in ("ttft", "tpot", "e2e")}
        assert LoadReport.model_validate(wire) == load
    assert shown(policy, 35.0, 2).state == "starting"
    assert read_load(shown(policy, 35.0, 2).model_dump_json(exclude=NO_SKETCHES).encode()) == shown(policy, 35.0, 2)


NO_SKETCHES = {"sketches", "waiting_ages", "running_tpot"}


def on_the_wire(sketch: object) -> dict[str, object]:
    return {"gamma": 1.01 / 0.99, "zero": sketch.zero, "bins": dict(sketch.bins)}  # type: ignore[attr-defined]


def test_a_policy_that_wants_no_sketches_gets_none_and_the_same_outcome() -> None:
    with_sketches, without = fixed(2), fixed(2)
    without.wants_sketches = False
    one, other = simulate(SCENARIO, with_sketches), simulate(SCENARIO, without)
    assert one.moments == other.moments
    assert shown(without, 100.0).sketches.e2e.count == 0
    assert shown(without, 100.0).counters == shown(with_sketches, 100.0).counters


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.HTTP_500, "/load answered HTTP 500"),
        (FaultKind.TIMEOUT, "/load did not answer within 1.5 s"),
        (FaultKind.NAN, "/load is not a load report: uptime_s"),
    ],
)
def test_a_pod_that_cannot_be_read_keeps_its_last_report_which_grows_old(kind: FaultKind, error: str) -> None:
    policy = fixed(2)
    simulate(replace(SCENARIO, faults=(Fault(kind=kind, at=50.0, seconds=20.0, share=0.5),)), policy)
    struck, other = policy.at(70.0).replicas
    assert struck.scrape_error is not None
    assert struck.scrape_error.startswith(error)
    assert struck.load == shown(policy, 50.0)
    assert struck.load_age_s == pytest.approx(20.3)
    assert other.scrape_error is None
    assert other.load_age_s == pytest.approx(0.3)
    well = policy.at(75.0).replicas[0]
    assert well.scrape_error is None
    assert well.load_age_s == pytest.approx(0.3)


def test_a_stale_pod_answers_in_time_with_what_it_said_when_that_began() -> None:
    policy = fixed(2)
    simulate(replace(SCENARIO, faults=(Fault(kind=FaultKind.STALE, at=48.0, seconds=22.0),)), policy)
    assert shown(policy, 70.0) == shown(policy, 50.0)
    assert policy.at(70.0).replicas[0].load_age_s == pytest.approx(0.3)
    assert shown(policy, 75.0).uptime_s > shown(policy, 50.0).uptime_s


def test_after_a_reset_counters_and_sketches_begin_again_under_the_same_boot() -> None:
    policy, untouched = fixed(2), fixed(2)
    simulate(replace(SCENARIO, faults=(Fault(kind=FaultKind.COUNTER_RESET, at=50.0),)), policy)
    simulate(SCENARIO, untouched)
    assert shown(policy, 55.0).boot == shown(policy, 50.0).boot
    assert shown(policy, 55.0).counters.received == 0
    assert shown(policy, 55.0).running == shown(untouched, 55.0).running
    late, then, now = shown(policy, 110.0), shown(untouched, 55.0), shown(untouched, 110.0)
    assert late.counters.generated_tokens == now.counters.generated_tokens - then.counters.generated_tokens
    assert late.sketches.tpot == now.sketches.tpot.since(then.sketches.tpot)


def test_looks_between_scrapes_see_the_last_report() -> None:
    policy = fixed(2)
    policy.interval_s = 2.0
    simulate(SCENARIO, policy)
    assert [policy.at(at).replicas[0].load_age_s for at in (10.0, 12.0, 14.0, 16.0)] == pytest.approx(
        [0.3, 2.3, 4.3, 1.3]
    )
    assert policy.at(2.0).replicas[0].load is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scrape_interval_s": 0.0}, "scrape_interval_s"),
        ({"scrape_delay_s": 5.0}, "scrape_delay_s 5.0"),
        ({"engine": replace(ENGINE, kv_tokens=10)}, "engine small"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_line(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        simulate(replace(SCENARIO, **change), fixed(1))  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
