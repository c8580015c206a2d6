"""What replicas carry, how arrivals are kept and forecast, and on how many replicas they would have been in time."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from tidegate_operator.decide.replica_model import Bound, Equipment, RequestSize, model_of
from tidegate_operator.decide.scaling_forecast import dispersion, forecast, occupied_ahead, risen_to, trend
from tidegate_operator.decide.scaling_history import BUCKET_S, LONGEST_S, Bucket, History, Span
from tidegate_operator.decide.scaling_memory import Learned, Memory, Window
from tidegate_operator.decide.scaling_needs import Needs, headroom, needs_of
from tidegate_operator.decide.scaling_peaks import LONGEST_HOLD_S, with_peak
from tidegate_operator.decide.scaling_policy import LatencyTarget, Metric, ScalingPolicy
from tidegate_operator.decide.scaling_replay import expected_now, late_share, replicas_that_hold
from tidegate_operator.observed import StepModel

TTFT, TPOT = LatencyTarget(metric=Metric.TTFT, seconds=2.0), LatencyTarget(metric=Metric.TPOT, seconds=0.1)
POLICY = ScalingPolicy(maximum=100, targets=(TTFT, TPOT))
GPU = Equipment(step=StepModel(a=9.5e-3, b=0.105e-3, c=2.24e-7, error=0.03), slots=256, kv_tokens=41_408)
CHAT = RequestSize(prompt_tokens=1155, output_tokens=211, kv_tokens=1300)


@pytest.mark.parametrize(
    ("equipment", "size", "policy", "bound"),
    [
        (GPU, CHAT, POLICY, Bound.KV_CACHE),
        (replace(GPU, kv_tokens=10**7), CHAT, POLICY, Bound.TPOT),
        (replace(GPU, slots=4), CHAT, POLICY, Bound.SLOTS),
        (replace(GPU, kv_tokens=10**7), CHAT, replace(POLICY, targets=(TTFT,)), Bound.COMPUTE),
        (replace(GPU, kv_tokens=0), CHAT, POLICY, Bound.TPOT),
    ],
    ids=["a small cache", "a target of TPOT", "few slots", "no target of TPOT", "a cache nobody told of"],
)
def test_a_replica_is_bound_by_what_it_runs_out_of_first(
    equipment: Equipment, size: RequestSize, policy: ScalingPolicy, bound: Bound
) -> None:
    model = model_of(equipment, size, policy)
    assert model.bound is bound
    step_s = model.service_s / size.output_tokens
    # In steady state a step of N requests takes a + N (b (1 + prompt / output) + c kv).
    each = equipment.step.b * (1 + size.prompt_tokens / size.output_tokens) + equipment.step.c * size.kv_tokens
    assert step_s == pytest.approx(equipment.step.a + model.concurrency * each)
    assert model.concurrency <= equipment.slots
    if policy is POLICY:
        assert step_s <= TPOT.seconds


@pytest.mark.parametrize(
    "step", [StepModel(a=0, b=0, c=0, error=0), StepModel(a=10, b=10, c=10, error=0)], ids=["free", "hopeless"]
)
def test_whatever_the_step_model_a_replica_carries_something_and_not_everything(step: StepModel) -> None:
    model = model_of(replace(GPU, step=step), CHAT, POLICY)
    assert 1 <= model.concurrency <= GPU.slots
    assert math.isfinite(model.rate) and model.rate > 0


@pytest.mark.parametrize(
    ("asked", "dispersion", "room"),
    [
        pytest.param(0.1, 1.0, 0.1, id="independent users"),
        pytest.param(0.1, 4.0, 0.1, id="conversations"),
        pytest.param(0.1, 16.0, 0.2, id="four times their variance, twice their deviation"),
        pytest.param(0.1, 900.0, 0.5, id="bursts: five times at most"),
        pytest.param(0.0, 900.0, 0.0, id="none was asked for"),
        pytest.param(-0.3, 900.0, -0.3, id="less than predicted was asked for"),
    ],
)
def test_headroom_grows_with_the_deviation_of_what_arrives(asked: float, dispersion: float, room: float) -> None:
    assert headroom(replace(POLICY, headroom=asked), dispersion) == pytest.approx(room)


def test_a_report_that_comes_late_is_no_burst() -> None:
    history = History()
    for _ in range(6):
        history = history.with_look(5.0, (), 1, 0.0)
    late = history.with_look(5.0, (Span(30.0, 60.0),), 1, 0.0)
    assert [b.arrived for b in late.buckets] == pytest.approx([0, 10, 10, 10, 10, 10, 10])


@pytest.mark.parametrize("interval", [0.5, 2.0, 5.0, 20.0])
def test_history_keeps_every_arrival_of_its_time_whatever_the_interval(interval: float) -> None:
    history, looks = History(), round(600 / interval)
    for _ in range(looks):
        history = history.with_look(interval, (Span(interval, 3.0),), 2, 0.5)
    assert history.seconds == pytest.approx(600)
    assert sum(b.arrived for b in history.buckets) == pytest.approx(3 * looks)
    assert all(b.ready == 2 and b.occupied == pytest.approx(0.5) for b in history.buckets)
    assert all(b.seconds >= min(interval, BUCKET_S) / 2 for b in history.buckets)


def test_history_forgets_what_is_older_than_half_an_hour() -> None:
    history = History()
    for _ in range(1000):
        history = history.with_look(5.0, (Span(5.0, 1.0),), 1, 0.0)
    assert history.seconds == pytest.approx(LONGEST_S, abs=2 * BUCKET_S)


def poisson(rates: list[float], seed: int = 1) -> tuple[Bucket, ...]:
    """A bucket of five seconds for each rate."""
    chance = random.Random(seed)

    def drawn(mean: float) -> float:
        count, at = 0, chance.expovariate(1)
        while at < mean:
            count, at = count + 1, at + chance.expovariate(1)
        return float(count)

    return tuple(Bucket(5.0, drawn(5 * rate)) for rate in rates)


def test_a_step_is_a_new_level_and_no_trend() -> None:
    buckets = poisson([4.0] * 30 + [40.0] * 6)
    level = risen_to(buckets)
    assert level == pytest.approx(40, rel=0.1)
    assert not math.isfinite(trend(buckets, [b.arrived / 5 for b in buckets]).error)


def test_a_ramp_is_a_trend() -> None:
    buckets = poisson([4.0 + i for i in range(30)])
    seen = trend(buckets, [b.arrived / 5 for b in buckets])
    assert seen.slope == pytest.approx(0.2, rel=0.15)
    assert forecast(History(buckets), 90.0).growth > 1.2


@pytest.mark.parametrize("seed", range(6))
def test_a_constant_load_is_neither(seed: int) -> None:
    buckets = poisson([20.0] * 60, seed)
    assert risen_to(buckets[-36:]) is None
    ahead = forecast(History(buckets), 90.0)
    assert ahead.surely <= 20.5
    assert ahead.growth < 1.15


def test_dispersion_is_one_for_independent_users_and_large_for_bursts() -> None:
    assert dispersion(poisson([20.0] * 200), 20.0) < 1.6
    bursts = tuple(Bucket(5.0, 200.0 if i % 10 == 0 else 0.0) for i in range(200))
    assert dispersion(bursts, 20.0) > 20
    assert dispersion(poisson([4.0] * 100 + [40.0] * 100), 20.0) < 2, "one step is no irregularity"
    clock = (Bucket(5.0, 20.0),) * 200
    assert dispersion(clock, 20.0) == 0.25, "no load is trusted to go on like a clock"
    assert dispersion(clock[:40], 20.0) == 1.0, "ten counts may be alike by chance"
    assert dispersion((*clock, Bucket(5.0, 30.0)), 20.0) == 0.25


def test_a_step_of_a_load_that_keeps_to_a_clock_is_seen_sooner() -> None:
    """llm-d's scenario: 4 requests a second, then 6, evenly spaced."""
    after = (Bucket(5.0, 30.0),) * 4
    clock, users = (Bucket(5.0, 20.0),) * 80, poisson([4.0] * 80, seed=3)
    assert forecast(History((*clock, *after)), 100.0).surely > 5.5
    assert forecast(History((*users, *after)), 100.0).surely < 5.5


def test_places_that_fill_up_are_followed_ahead_but_not_over_a_change_of_replicas() -> None:
    filling = History(tuple(Bucket(5.0, 10.0, 4.0, 1.0 + 0.1 * i) for i in range(12)))
    assert occupied_ahead(filling, 60.0) == pytest.approx(2.0 + 0.02 * 70, rel=0.05)
    grown = History((*filling.buckets[:-2], *(b._replace(ready=5.0) for b in filling.buckets[-2:])))
    assert occupied_ahead(grown, 60.0) <= 2.1


@pytest.mark.parametrize(
    ("arrivals", "places", "late"),
    [
        ((), 10.0, 0.0),
        (((5.0, 0.0),) * 3, 10.0, 0.0),
        (((5.0, 50.0),) * 20, 100.0, 0.0),
        (((5.0, 50.0),) * 20, 0.0, 1.0),
    ],
    ids=["no time at all", "nothing came", "places enough", "no places"],
)
def test_share_that_would_have_been_late(arrivals: tuple[tuple[float, float], ...], places: float, late: float) -> None:
    assert late_share(arrivals, places, 5.0, 2.0) == late


def test_more_places_are_never_later() -> None:
    arrivals = tuple((5.0, float(n)) for n in (3, 80, 0, 5, 120, 4, 4, 60, 0, 0, 9))
    shares = [late_share(arrivals, places, 5.0, 2.0) for places in (5, 10, 20, 40, 60, 120)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5 and shares[-1] == 0


def test_a_burst_needs_more_replicas_than_its_mean() -> None:
    model = model_of(GPU, CHAT, POLICY)
    even = ((5.0, 50.0),) * 36
    bursts = tuple((5.0, 300.0 if i % 6 == 0 else 0.0) for i in range(36))
    evenly, in_bursts = (replicas_that_hold(b, model, 1.5, 0.01, 3, 99) for b in (even, bursts))
    assert evenly == math.ceil(10 / model.rate)
    assert evenly < in_bursts <= 6 * evenly


def test_what_should_wait_now_is_what_replicas_could_not_serve() -> None:
    short = expected_now([Bucket(5.0, 50.0, 1.0)] * 12, 20.0, 5.0)
    assert short.running == 20 and short.waiting == pytest.approx(12 * 30, rel=0.2)
    assert expected_now([Bucket(5.0, 50.0, 4.0)] * 12, 20.0, 5.0).waiting == 0


def needs(history: History, *, hold_s: float = 0.0, headroom: float = 0.0, efficiency: float = 1.0) -> Needs:
    learned = Learned(equipment=GPU, size=CHAT, hold_s=hold_s, efficiency=efficiency)
    found = needs_of(Window(history=history), learned, replace(POLICY, headroom=headroom), 3)
    assert found is not None
    return found


def test_headroom_and_lost_efficiency_ask_for_more_in_proportion() -> None:
    steady = History(tuple(Bucket(5.0, 200.0, 12.0, 8.0) for _ in range(36)))
    plain, roomy, weak = needs(steady), needs(steady, headroom=0.5), needs(steady, efficiency=0.5)
    assert roomy.wanted == pytest.approx(1.5 * plain.wanted, abs=1)
    assert weak.wanted == pytest.approx(2 * plain.wanted, abs=1)
    assert plain.wanted <= plain.staying


def test_nothing_is_said_before_requests_were_seen() -> None:
    steady = Window(history=History((Bucket(5.0, 50.0),)))
    assert needs_of(steady, Learned(equipment=GPU), POLICY, 1) is None
    assert needs_of(steady, Learned(size=CHAT), POLICY, 1) is None
    assert needs_of(Window(), Learned(equipment=GPU, size=CHAT), POLICY, 1) is None


def test_a_peak_that_comes_again_is_looked_back_for_and_forgotten_if_it_does_not() -> None:
    memory, history, now = Memory(learned=Learned(equipment=GPU, size=CHAT)), History(), 0.0
    holds: list[float] = []
    for second in range(0, 6000, 5):
        peak = second < 2400 and second % 600 < 120
        history = history.with_look(5.0, (Span(5.0, 150.0 if peak else 10.0),), 9, 0.0)
        now = float(second)
        memory = with_peak(memory, needs(history), 5.0, now)
        holds.append(memory.learned.hold_s)
    assert holds[500 // 5] == 0, "one peak is none that returns"
    assert 480 < holds[900 // 5] <= LONGEST_HOLD_S
    assert 0 < holds[-1] < 0.8 * max(holds)
