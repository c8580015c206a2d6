"""Does each rival do what its publishers wrote, by their own numbers where they gave any?"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from fleet_timelines import BLOCKS, NOW, TOLD, busy, fleet, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_lab.simulate.policies.aibrix import Aibrix
from tidegate_lab.simulate.policies.aibrix import replicas_for as apa
from tidegate_lab.simulate.policies.dynamo import DynamoLoad, DynamoSla
from tidegate_lab.simulate.policies.hpa import DOWN, Behavior, Rate, Rules, external_average, pods_average
from tidegate_lab.simulate.policies.hpa_policies import HpaConcurrency, KedaQueue
from tidegate_lab.simulate.policies.knative import Knative
from tidegate_lab.simulate.policies.kubeai import KubeAI
from tidegate_lab.simulate.policies.llmd_saturation import LlmdSaturation, compute_bound
from tidegate_lab.simulate.policies.llmd_saturation import replicas_for as saturation
from tidegate_lab.simulate.policies.llmd_slo import LlmdSlo
from tidegate_lab.simulate.policies.llmd_slo import replicas_for as slo
from tidegate_lab.simulate.policies.plans import Plan, Planned, Static
from tidegate_lab.simulate.policies.signals import Latency, Lengths
from tidegate_lab.simulate.policy import Policy
from tidegate_lab.simulate.scenario import EPOCH
from tidegate_operator.observed import GatewayFacts, LoadReport
from tidegate_operator.observed_load import Counters, Sketches
from tidegate_operator.observed_sketch import Sketch

RIVALS = [KedaQueue, HpaConcurrency, Knative, KubeAI, Aibrix, LlmdSlo, LlmdSaturation, DynamoLoad, DynamoSla]


@pytest.mark.parametrize(
    ("total", "target", "current", "replicas"),
    [
        pytest.param(50, 5, 10, 10, id="on target"),
        pytest.param(54, 5, 10, 10, id="8 % over is within the tolerance"),
        pytest.param(55, 5, 10, 10, id="10 % over too"),
        pytest.param(56, 5, 10, 12, id="12 % over: the total over the target, rounded up"),
        pytest.param(44, 5, 10, 9, id="12 % under"),
        pytest.param(0, 5, 3, 0, id="nothing waits"),
        pytest.param(7, 5, 0, 2, id="from zero there is no tolerance"),
    ],
)
def test_an_external_average_value(total: float, target: float, current: int, replicas: int) -> None:
    assert external_average(total, target, current) == replicas


@pytest.mark.parametrize(
    ("values", "pending", "silent", "replicas"),
    [
        pytest.param([16, 16], 0, 0, 2, id="on target"),
        pytest.param([32, 32], 0, 0, 4, id="twice the target"),
        pytest.param([32, 32], 1, 0, 4, id="a pending pod counts as 0, and the sum is what it was"),
        pytest.param([20, 20], 1, 0, 2, id="a pending pod turns 125 % into 83 %: nothing is done"),
        pytest.param([4, 4], 1, 0, 1, id="a pending pod does not help on the way down"),
        pytest.param([4, 4], 0, 2, 3, id="silent ones count as on target on the way down: 40 of 64"),
        pytest.param([64], 0, 1, 4, id="and as idle on the way up"),
        pytest.param([], 0, 3, 5, id="no metric at all: an error, and nothing changes"),
    ],
)
def test_a_pods_average_value(values: list[float], pending: int, silent: int, replicas: int) -> None:
    current = 5 if not values else len(values) + pending + silent if silent else len(values)
    assert pods_average(values, 16, current, pending=pending, silent=silent) == replicas


@pytest.mark.parametrize(
    ("behavior", "recommended", "settled"),
    [
        pytest.param(Behavior(), [10] * 4, [5, 10, 10, 10], id="up by 4 pods, then doubled, in 15 s"),
        pytest.param(Behavior(), [100] * 5, [5, 10, 20, 40, 80], id="doubling every sync"),
        pytest.param(Behavior(), [4, 1, 1], [4, 4, 4], id="down waits for its window"),
        pytest.param(
            Behavior(Rules(window_s=30, rates=(Rate(pods=4, period_s=60), Rate(percent=100, period_s=60)))),
            [9] * 7,
            [1, 1, 5, 5, 5, 5, 9],
            id="a window of 30 s up waits two syncs; 4 pods a minute",
        ),
        pytest.param(
            Behavior(Rules(window_s=60, rates=(Rate(pods=9, period_s=15),)), Rules(window_s=30, rates=DOWN.rates)),
            [4, 4, 4, 4, 4, 2, 6, 3, 3],
            [1, 1, 1, 1, 4, 4, 4, 4, 3],
            id="wishes on both sides of what runs within the windows: it stays",
        ),
    ],
)
def test_windows_and_rates_of_the_hpa(behavior: Behavior, recommended: list[int], settled: list[int]) -> None:
    now, current, seen = NOW, 1, []
    for wish in recommended:
        current = behavior.settle(now, current, wish)
        seen.append(current)
        now += 15
    assert seen == settled


def test_the_hpa_shrinks_at_once_after_five_minutes_of_wanting_less() -> None:
    behavior, current, seen = Behavior(), 8, []
    for i in range(25):
        current = behavior.settle(NOW + 15 * i, current, 2)
        seen.append(current)
    assert seen.index(2) == 20 and set(seen) == {8, 2}


def test_keda_asks_for_the_queue_over_five_and_reads_silence_as_none() -> None:
    assert shown(KedaQueue(TOLD), [fleet([busy(8, 30)])]) == [5]  # 6 wanted, 4 pods more in one sync
    gone = [fleet(["silent", "silent", "silent"])] * 22
    assert shown(KedaQueue(TOLD), gone)[-1] == 1  # fault 2: a failing scrape scales the fleet down


def test_an_hpa_on_concurrency_changes_nothing_in_silence() -> None:
    assert shown(HpaConcurrency(TOLD), [fleet(["silent", "silent", "silent"])] * 22)[-1] == 3
    assert shown(HpaConcurrency(TOLD), [fleet([busy(32, 16)])]) == [3]


def test_knative_panics_on_six_seconds_of_twice_the_load_and_does_not_shrink_for_a_minute() -> None:
    calm, storm = fleet([busy(50)]), fleet([busy(600)])
    chosen = shown(Knative(TOLD), [calm] * 30 + [storm] * 3 + [calm] * 40)
    assert chosen[29] == 1
    assert chosen[32] == math.ceil(600 / 70)  # the panic window is full of it
    assert set(chosen[32:60]) == {9}
    assert chosen[-1] == 1


def test_knative_starts_in_panic_where_several_run_and_goes_down_by_halves() -> None:
    idle = fleet([busy(0)] * 8)
    chosen = shown(Knative(TOLD), [idle] * 40)
    assert chosen[:30] == [8] * 30
    assert chosen[-1] == 4  # the fleet shown still has 8 ready; each look may at most halve it
    assert shown(Knative(TOLD), [fleet(["silent", "silent"])]) == [2]


def test_kubeai_averages_ten_minutes_and_waits_three_looks_to_shrink() -> None:
    load = fleet([busy(250)])
    assert shown(KubeAI(TOLD), [load]) == [3]
    after = shown(KubeAI(TOLD), [load] * 60 + [fleet([busy(0)] * 3)] * 63)
    # After 12 idle looks the average is 200: two would do. Three looks in a row wanted that by the next.
    assert after[60 + 13] == 3 and after[60 + 14] == 2
    assert after[-1] == 1


@pytest.mark.parametrize(
    ("current", "usage", "replicas"),
    [
        pytest.param(4, 0.54, 4, id="within 10 %"),
        pytest.param(4, 0.60, 5, id="120 % of the target"),
        pytest.param(4, 1.50, 8, id="at most doubled"),
        pytest.param(4, 0.40, 4, id="80 % of four, rounded up"),
        pytest.param(8, 0.05, 4, id="at most halved"),
    ],
)
def test_the_law_of_apa(current: int, usage: float, replicas: int) -> None:
    assert apa(current, usage, 0.5) == replicas


def test_apa_multiplies_what_still_starts() -> None:
    # Fault 1: two replicas at twice the target are four, then eight, while none of the new ones is up.
    hot = [busy(8, kv=1.0)] * 2
    looks = [fleet(hot, wanted=n) for n in (2, 4, 8)]
    assert shown(Aibrix(TOLD), looks) == [4, 8, 16]
    assert shown(Aibrix(TOLD), [fleet(["silent", "silent"])]) == [2]


@pytest.mark.parametrize(
    ("n", "r", "s", "replicas"),
    [
        pytest.param(3, 3, 0.50, 3, id="between 0.40 and 0.55 it holds"),
        pytest.param(3, 3, 0.60, 4, id="just above"),
        pytest.param(3, 3, 2.00, 11, id="at the clamp: 3 + ceil(3 · 2.636)"),
        pytest.param(8, 4, 1.00, 8, id="half of them warm up: the ask covers what lacks beyond them"),
        pytest.param(8, 4, 2.00, 15, id="8 + ceil(8 · 0.818)"),
        pytest.param(8, 8, 0.20, 4, id="half of 0.40: half of them go"),
        pytest.param(8, 4, 0.39, 8, id="going down takes no credit, and rounds in favour of staying"),
        pytest.param(8, 8, 0.00, 0, id="idle"),
    ],
)
def test_the_formula_of_the_slo_aware_law(n: int, r: int, s: float, replicas: int) -> None:
    assert slo(n, r, s) == replicas


def test_the_slo_aware_law_predicts_from_the_queue_and_drains_one_pod_in_two_minutes() -> None:
    def pod(looks: int, waiting: int, kv: float) -> dict[str, Any]:
        done = 30 * looks
        return busy(8, waiting, kv=kv, received=done, prompt_tokens=1000 * done, finished=done)

    def seen(waiting: int, kv: float) -> list[int]:
        return shown(LlmdSlo(TOLD), [fleet([pod(i + 1, waiting, kv)] * 3) for i in range(4)])

    # A prefill of 1,000 tokens takes 0.11 s; nine that fit take 1 s, half of the target.
    assert seen(0, 0.5) == [3] * 4
    assert seen(8, 0.5) == [3] * 4
    # Where the cache is full they wait for others to finish: 0.5 a second and pod in the first look, 2 in the fourth,
    # so that two wait 4, 2, 1.3 and 1 s. After 30 s of stabilization four pods a minute may come.
    assert seen(2, 1.0) == [3, 3, 7, 3]
    stuck = [fleet([busy(8, 9, kv=1.0, received=30, prompt_tokens=30_000)] * 3)] * 3
    assert shown(LlmdSlo(TOLD), stuck) == [3, 3, 7]
    idle = LlmdSlo(TOLD)
    drained = [8]
    for i in range(40):
        drained.append(idle.choose(fleet([busy(0)] * drained[-1]), NOW + 15 * i).replicas)
    falls = [i for i in range(1, len(drained)) if drained[i] < drained[i - 1]]
    assert {b - a for a, b in pairwise(falls)} == {8}  # 120 s apart


@pytest.mark.parametrize(
    ("current", "up_now", "demand", "replicas"),
    [
        pytest.param(4, 4, 300, 4, id="75 % of 400: between the bounds"),
        pytest.param(4, 4, 350, 5, id="87.5 %: one more"),
        pytest.param(8, 4, 350, 8, id="four pending count as supply"),
        pytest.param(4, 4, 200, 3, id="50 %: three hold it at 70 %"),
        pytest.param(4, 4, 0, 1, id="the last one stays"),
    ],
)
def test_the_law_of_saturation(current: int, up_now: int, demand: float, replicas: int) -> None:
    assert saturation(current, up_now, demand, 100.0) == replicas


def test_saturation_works_out_its_capacity_from_flags_and_waits_four_minutes_to_grow() -> None:
    assert compute_bound(2048, 256, 1000, 1000) == 256 * 1500  # 1024 by the budget, 256 by the slots
    assert compute_bound(2048, 256, 4000, 100) == pytest.approx(2048 * 100 / 4100 * 4050)
    full = fleet([busy(30, kv=0.95, received=100, prompt_tokens=115_000, finished=90, generated_tokens=19_000)])
    chosen = shown(LlmdSaturation(TOLD), [full] * 20)
    assert chosen[:16] == [1] * 16 and chosen[16] == 2


def test_dynamo_steps_by_one_and_only_when_nothing_is_under_way() -> None:
    hot, cold = busy(30, 5, kv=0.9, received=10, prompt_tokens=20_000), busy(1, kv=0.2)
    assert shown(DynamoLoad(TOLD), [fleet([hot, cold])]) == [3]  # one replica above 100 % is enough
    assert shown(DynamoLoad(TOLD), [fleet([hot, "starting"])]) == [2]
    assert shown(DynamoLoad(TOLD), [fleet([hot, "silent"])]) == [2]
    assert shown(DynamoLoad(TOLD), [fleet([cold, cold])]) == [1]
    assert shown(DynamoLoad(TOLD), [fleet([cold])]) == [1]


def test_dynamo_with_targets_grows_where_all_miss_and_shrinks_where_the_rest_could_bear_it() -> None:
    def pod(waiting: int, kv: float) -> dict[str, Any]:
        return busy(20, waiting, kv=kv, received=100, prompt_tokens=100_000, finished=100, generated_tokens=20_000)

    queue = pod(30, 0.8)  # 31,000 tokens to compute take 3.6 s
    assert shown(DynamoSla(TOLD), [fleet([queue, queue])]) == [3]
    assert shown(DynamoSla(TOLD), [fleet([queue, pod(0, 0.8)])]) == [2]
    assert shown(DynamoSla(TOLD), [fleet([pod(0, 0.8)] * 2)]) == [2]  # 160 % of a cache does not fit
    assert shown(DynamoSla(TOLD), [fleet([pod(0, 0.2)] * 2)]) == [1]


def test_a_plan_is_followed_to_the_second() -> None:
    plan = Plan((0.0, 30.0, 60.0), (2, 5, 3))
    policy = Planned(TOLD, "oracle", plan)
    chosen = [policy.choose(fleet([busy()]), EPOCH + t).replicas for t in (0, 29.9, 30, 59, 60, 1e6)]
    assert chosen == [2, 2, 5, 5, 3, 3]
    assert Static(TOLD, 99).choose(fleet([busy()]), EPOCH).replicas == TOLD.maximum
    with pytest.raises(ValueError, match="begins at 0"):
        Plan((1.0,), (2,))


def test_requests_that_are_held_count_for_who_counts_in_front() -> None:
    nobody = fleet(["starting"])
    waiting = type(nobody)(
        deployment=nobody.deployment, replicas=nobody.replicas, gateway=GatewayFacts(held=250, oldest_held_s=1.0)
    )
    assert shown(KubeAI(TOLD), [waiting]) == [3]
    assert shown(Knative(TOLD), [waiting]) == [4]


def said(boot: str, **fields: Any) -> LoadReport:
    base: dict[str, Any] = {"version": 1, "state": "ready", "uptime_s": 1.0, "slots": 4, "running": 0, "waiting": 0}
    return LoadReport(**base, boot=boot, **fields)


def test_lengths_survive_a_restart_and_forget_after_their_window() -> None:
    lengths = Lengths(300)
    lengths.look(NOW, {"a": said("1", counters=Counters(received=10, prompt_tokens=1000))})
    lengths.look(NOW + 60, {"a": said("2", counters=Counters(received=10, prompt_tokens=3000, finished=2))})
    assert lengths.prompt() == 200 and lengths.answer() == 0
    lengths.look(NOW + 301, {})
    assert lengths.prompt() == 300


def test_latency_is_of_the_window_alone() -> None:
    latency = Latency("ttft", 60)
    for i, times in enumerate(([5.0], [5.0, 1.0], [5.0, 1.0, 1.0])):
        sketches = Sketches(ttft=Sketch.of(times))
        latency.look(NOW + 30 * i, {"a": said("1", counters=Counters(), sketches=sketches)})
    assert latency.quantile(0.9) == pytest.approx(1.0, rel=0.01)


pods = st.lists(
    st.one_of(
        st.sampled_from(["starting", "silent"]),
        st.builds(
            busy,
            st.integers(0, 300),
            st.integers(0, 3000),
            kv=st.floats(0, 1),
            received=st.integers(0, 1000),
            prompt_tokens=st.integers(0, 10**6),
            finished=st.integers(0, 1000),
            generated_tokens=st.integers(0, 10**6),
        ),
    ),
    max_size=8,
)


@pytest.mark.parametrize("rival", RIVALS)
@settings(max_examples=30)
@given(looks=st.lists(st.tuples(pods, st.integers(0, 25)), min_size=1, max_size=6))
def test_whatever_is_seen_the_bounds_hold(rival: type[Policy], looks: list[tuple[list[Any], int]]) -> None:
    policy = rival(TOLD)  # type: ignore[call-arg]
    for i, (seen, wanted) in enumerate(looks):
        choice = policy.choose(fleet(seen, wanted), NOW + i * policy.interval_s)
        # One that changes nothing leaves the number as it found it, also where somebody else put it out of bounds.
        assert TOLD.minimum <= choice.replicas <= TOLD.maximum or choice.replicas == wanted


def test_blocks_of_the_tests_are_those_of_the_engine() -> None:
    assert TOLD.engine.kv_tokens == BLOCKS * 16
