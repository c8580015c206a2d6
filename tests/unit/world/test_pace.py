"""When services are read: timelines of the interval, and rounds in virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from answering_pods import AnsweringPods, always
from hypothesis import given
from hypothesis import strategies as st
from in_memory_api import InMemoryApi
from prometheus_client.exposition import generate_latest
from recorded_pods import SERVING, pod
from tidegate_operator import loop
from tidegate_operator.observed import ServiceKey
from tidegate_operator.pace import Pace, spread
from tidegate_operator.queue import KeyedQueue
from tidegate_operator.world.calls import Kind
from tidegate_operator.world.scrape import Scraper
from tidegate_operator.world.telemetry import Telemetry
from tidegate_operator.world.view import View
from virtual_time import in_virtual_time, pass_time

NAMES = [ServiceKey("ns", f"svc-{n:03}") for n in range(100)]


@pytest.mark.parametrize(
    ("rounds", "interval"),
    [
        pytest.param([], 5.0, id="as configured at first"),
        pytest.param([(5.0, 4.0)], 5.0, id="a round on time leaves it"),
        pytest.param([(5.1, 0.0)], 5.0, id="a timer that is a little late is no late round"),
        pytest.param([(8.0, 0.0)], 8.0, id="a late round sets what a round takes"),
        pytest.param([(8.0, 0.0), (8.0, 1.0)], 7.2, id="on time, it is tried a tenth shorter"),
        pytest.param([(8.0, 0.0), (8.0, 1.0), (8.1, 0.0)], 8.1, id="that was too short"),
        pytest.param([(40.0, 0.0), (40.0, 37.0)], 6.0, id="a burst of work has passed: twice the time it had work for"),
        pytest.param([(40.0, 0.0), (40.0, 39.0)], 5.0, id="never shorter than configured"),
    ],
)
def test_the_interval_stretches_and_comes_back(rounds: list[tuple[float, float]], interval: float) -> None:
    pace = Pace(5.0)
    for took, idle in rounds:
        pace.round_took(took, idle)
    assert pace.interval == pytest.approx(interval)
    assert pace.is_stretched == (interval > 5.25)


@pytest.mark.parametrize(
    ("late", "now", "moved"),
    [
        pytest.param(0.0, 0.02, 0.0, id="a timer's own lateness is made up for"),
        pytest.param(0.0, 1.5, 1.5, id="a second and a half moves the rest of the round back"),
        pytest.param(1.5, 1.5, 1.5, id="from then on the turns are on time"),
        pytest.param(1.5, 2.0, 2.0, id="and later still, further back"),
    ],
)
def test_turns_after_a_late_one_are_moved_back_and_not_hurried(late: float, now: float, moved: float) -> None:
    assert Pace.behind(late, now) == moved


def test_a_pause_is_made_up_for_little_by_little() -> None:
    assert Pace.caught_up(1.0, 2.5) == 0.5
    assert Pace.caught_up(1.0, 60) == 0.0


def test_a_processor_that_pauses_now_and_then_stretches_nothing() -> None:
    async def course() -> None:
        rounds = Rounds(0.01, always(GOOD))

        async def pauses() -> None:
            while True:
                await asyncio.sleep(1.9)
                pass_time(0.25)

        pausing = asyncio.create_task(pauses())
        await rounds.run(120)
        pausing.cancel()
        assert rounds.pace.interval < 5.25
        assert max(rounds.gaps()) < 5.75
        assert rounds.delays_over(0.5) == 0

    in_virtual_time(course())


@given(st.lists(st.integers(1, 500), max_size=60), st.floats(0.2, 1000))
def test_places_are_in_order_within_the_interval_and_as_far_apart_as_their_weights(
    weights: list[int], interval: float
) -> None:
    asked = {ServiceKey("ns", str(n)): weight for n, weight in enumerate(weights)}
    slots = spread(asked, interval)
    assert [slot.key for slot in slots] == list(asked)
    ends = [*(slot.after for slot in slots[1:]), interval]
    for slot, end in zip(slots, ends, strict=False):
        assert end - slot.after == pytest.approx(interval * asked[slot.key] / sum(weights))


class Rounds:
    """The scaling loop over a hundred services of one pod, whose decisions take `work` seconds of the processor."""

    def __init__(self, work: float, pods: AnsweringPods) -> None:
        self.work = work
        self.decided: dict[ServiceKey, list[float]] = {}
        self.clock = asyncio.get_running_loop().time
        self.pace, self.queue, self.under_way = Pace(5.0), KeyedQueue(self.clock), loop.UnderWay()
        self.telemetry = Telemetry(self.clock)
        self.view = View(InMemoryApi(), Scraper(pods, clock=self.clock), clock=self.clock)
        for number, (namespace, name) in enumerate(NAMES):
            meta = {"namespace": namespace, "name": name, "uid": f"s{number}", "resourceVersion": "1"}
            self.view.see(Kind.INFERENCE_SERVICE, {"metadata": meta}, deleted=False)
            body = pod(SERVING)
            body["metadata"] |= {"namespace": namespace, "uid": f"p{number}", "name": f"{name}-1-x"}
            body["metadata"]["labels"] |= {"tidegate.dev/service": name, "pod-template-hash": "1"}
            body["metadata"]["ownerReferences"][0]["name"] = f"{name}-1"
            body["status"] = body["status"] | {"podIP": f"10.0.0.{number}"}
            self.view.see(Kind.POD, body, deleted=False)

    async def reconcile(self, key: ServiceKey) -> None:
        pass_time(self.work)
        self.decided.setdefault(key, []).append(self.clock())

    async def run(self, seconds: float) -> None:
        tasks = [
            asyncio.create_task(loop.scale(self.view, self.queue, self.under_way, self.telemetry, self.pace)),
            *(
                asyncio.create_task(loop.work(self.queue, self.reconcile, self.under_way, self.telemetry))
                for _ in range(loop.WORKERS)
            ),
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def gaps(self) -> list[float]:
        return [b - a for times in self.decided.values() for a, b in pairwise(times)]

    def delays_over(self, seconds: float) -> float:
        """How many decisions were applied later than this after they were due."""
        text = generate_latest(self.telemetry.registry).decode()
        family = "tidegate_operator_decision_delay_seconds"
        counted = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith(family)}
        return counted[f"{family}_count"] - counted[f'{family}_bucket{{le="{seconds}"}}']


GOOD = (
    b'{"version": 1, "boot": "b1", "state": "ready", "uptime_s": 1.5, "slots": 8, "running": 0, "waiting": 0,'
    b' "counters": {"received": 3, "finished": 3}}'
)


def test_with_time_to_spare_each_service_is_decided_every_interval_and_no_two_at_once() -> None:
    async def course() -> None:
        rounds = Rounds(0.01, always(GOOD))
        await rounds.run(60)
        assert set(rounds.decided) == set(NAMES)
        assert rounds.gaps() == pytest.approx([5.0] * len(rounds.gaps()), abs=0.02)
        times = sorted(t for times in rounds.decided.values() for t in times)
        assert min(b - a for a, b in pairwise(times)) >= 0.01
        assert rounds.delays_over(0.1) == 0
        assert rounds.pace.interval == 5.0

    in_virtual_time(course())


def test_with_more_work_than_time_all_services_wait_alike_and_none_starves() -> None:
    async def course() -> None:
        rounds = Rounds(0.1, always(GOOD))  # a round takes ten seconds
        await rounds.run(300)
        assert rounds.delays_over(0.005) > 0
        counts = {len(times) for times in rounds.decided.values()}
        assert set(rounds.decided) == set(NAMES)
        assert max(counts) - min(counts) <= 1
        assert rounds.pace.is_stretched
        later = [gap for gap in rounds.gaps() if gap][200:]
        assert min(later) > 8.5
        assert max(later) < 14
        assert rounds.delays_over(5.0) == 0  # each waits for its turn, not from when it would have had one
        assert f"scrape_interval_seconds {rounds.pace.interval}" in generate_latest(rounds.telemetry.registry).decode()

    in_virtual_time(course())


def test_work_that_passes_lets_the_interval_come_back() -> None:
    async def course() -> None:
        rounds = Rounds(0.2, always(GOOD))
        await rounds.run(60)
        assert rounds.pace.interval > 15
        rounds.work = 0.001
        await rounds.run(60)
        assert rounds.pace.interval == 5.0

    in_virtual_time(course())


def test_a_pod_that_hangs_delays_its_own_service_only() -> None:
    async def answer(ip: str) -> bytes:
        await asyncio.sleep(1.5 if ip == "10.0.0.7" else 0.003)
        return GOOD

    async def course() -> None:
        rounds = Rounds(0.001, AnsweringPods(answer))
        await rounds.run(60)
        assert rounds.pace.interval == 5.0
        assert rounds.delays_over(0.1) == 1  # at the first look nobody knew
        assert len(rounds.decided[NAMES[7]]) >= 11

    in_virtual_time(course())


def test_a_service_that_waits_for_a_person_does_not_hold_a_place() -> None:
    async def course() -> None:
        rounds = Rounds(0.001, always(GOOD))
        for key in NAMES[: loop.MOST_UNDER_WAY + 5]:
            rounds.queue.add(key, after=3600)
        await rounds.run(30)
        assert all(len(rounds.decided[key]) >= 5 for key in NAMES[loop.MOST_UNDER_WAY + 5 :])
        assert rounds.pace.interval == 5.0

    in_virtual_time(course())
