"""Real pods beside simulated ones: what is counted of the real ones, and that both get the same."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest
from tidegate_lab.load.report import Report
from tidegate_lab.real_bench.bed import Replay
from tidegate_lab.real_bench.pods import Glance, Life, Lives, Watching, median_and_spread
from tidegate_lab.real_bench.quiet import Ticks, put_pods_first
from tidegate_lab.real_bench.rows import over, real_side, simulated_sides
from tidegate_lab.real_bench.service import LONGEST_ANSWER, LONGEST_PROMPT, SHORTEST_PROMPT, TRAFFIC, manifest, service
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.fixed import Served
from tidegate_lab.simulate.scenario import ColdStart, Targets
from tidegate_lab.traffic.trace import Trace
from tidegate_operator.resource import read_spec


def seen(uid: str, created_at: float, ready_since: float | None = None) -> Glance:
    return Glance(uid=uid, created_at=created_at, ready=ready_since is not None, ready_since=ready_since)


def timeline(*looks: tuple[float, list[Glance]]) -> Lives:
    lives = Lives()
    for now, glances in looks:
        lives.see(glances, now)
    return lives


def test_a_pod_is_paid_for_from_its_creation_until_it_is_gone_and_only_within_the_traffic() -> None:
    lives = timeline(
        (101.0, [seen("old", 50.0, 60.0)]),
        (131.0, [seen("old", 50.0, 60.0), seen("new", 130.0)]),
        (141.0, [seen("old", 50.0, 60.0), seen("new", 130.0, 140.0)]),
        (161.0, [seen("new", 130.0, 140.0)]),
    )
    # The old one from the traffic's beginning at 100 to 161; the new one from 130.5 to its end at 200.
    assert lives.replica_hours(100.0, 200.0) * 3600 == pytest.approx(61.0 + 69.5)
    assert lives.most(100.0, 200.0) == 2
    assert lives.most(170.0, 200.0) == 1
    assert lives.cold_starts() == pytest.approx([10.0, 10.0])
    assert lives.since(100.0) == (Life(-49.5, -39.5, 61.0), Life(30.5, 40.5, None))


def test_a_pod_that_went_before_it_was_ready_is_paid_for_and_tells_no_cold_start() -> None:
    lives = timeline((10.0, [seen("kept", 0.0, 5.0), seen("short", 9.0)]), (20.0, [seen("kept", 0.0, 5.0)]))
    assert lives.pods["short"] == Life(9.5, None, 20.0)
    assert lives.replica_hours(0.0, 30.0) * 3600 == pytest.approx(29.5 + 10.5)
    assert lives.cold_starts() == pytest.approx([5.0])


def test_whole_seconds_of_the_api_server_are_taken_to_be_half_a_second_later_but_never_in_the_future() -> None:
    lives = timeline((100.2, [seen("a", 100.0)]), (104.9, [seen("a", 100.0, 104.0)]))
    assert lives.pods["a"] == Life(100.2, 104.5, None)


def test_an_api_server_that_does_not_answer_ends_no_pod() -> None:
    answers: list[list[Glance] | None] = [[seen("a", 0.0, 1.0)], [], None, [seen("a", 0.0, 1.0)]]
    asked = threading.Semaphore(0)

    def look() -> list[Glance]:
        asked.release()
        answer = answers.pop(0) if answers else []
        if answer is None:
            raise OSError("connection refused")
        return answer

    with Watching(look, every_s=0.0) as lives:
        assert all(asked.acquire(timeout=10) for _ in range(6))
    assert lives.pods["a"].gone_at is None


def test_cold_starts_become_a_median_and_the_spread_of_their_logarithms() -> None:
    assert median_and_spread([10.0]) == (10.0, 0.0)
    median_s, sigma = median_and_spread([5.0, 10.0, 20.0])
    assert median_s == 10.0
    assert sigma == pytest.approx(math.log(2) * math.sqrt(2 / 3))


def report(sent: int, completed: int) -> Report:
    nothing = {"ttft": None, "tpot": None, "inter_token": None, "e2e": None}
    return Report.from_json(
        {
            "shape": "", "took_s": 10.0, "sent": sent, "completed": completed, "failed": sent - completed,
            "failures": {}, "first_failure": "", "prompt_tokens": 0, "cached_tokens": 0, "generated_tokens": 0,
            "late_max_s": 0.0, **nothing,
        }
    )  # fmt: skip


def test_a_request_that_failed_or_was_slow_in_any_way_has_missed() -> None:
    trace = Trace("t", np.array([0.0, 1.0, 2.0]), np.full(3, 50, np.int32), np.full(3, 11, np.int32), 10.0)
    first, last = np.array([1.0, 4.5, 3.0]), np.array([2.0, 5.5, 9.0])
    replay = Replay(report=report(5, 3), served=Served(trace, first, last), began_at=100.0)
    side = real_side(replay, timeline((100.0, [seen("a", 90.0, 95.0)])), trace, Targets(ttft_s=3.0, tpot_s=0.25))
    # The first is good; the second waits 3.5 s, the third takes 0.6 s a token, two failed.
    assert side.attainment == pytest.approx(1 / 5)
    assert side.replica_hours * 3600 == pytest.approx(10.0)
    assert (side.ttft_p50, side.tpot_p99) == pytest.approx((1.0, 0.6))


@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_is_what_a_small_engine_can_serve_and_the_same_every_time(name: str) -> None:
    trace, again = TRAFFIC[name].trace(), TRAFFIC[name].trace()
    assert (trace.at == again.at).all() and (trace.prompt == again.prompt).all()
    assert 300 < trace.seconds <= 600
    assert trace.prompt.min() >= SHORTEST_PROMPT and trace.prompt.max() <= LONGEST_PROMPT
    assert trace.output.min() >= 2 and trace.output.max() <= LONGEST_ANSWER


def test_the_service_is_one_that_the_operator_reads_fixed_or_scaled() -> None:
    assert read_spec(manifest("400m", 1, 3)["spec"]).scaling is None
    scaled = service("400m", 3)
    assert (scaled.policy.minimum, scaled.policy.maximum) == (1, 3)
    assert scaled.targets == Targets(ttft_s=3.0, tpot_s=0.3)
    assert scaled.engine(EngineModel(name="e", step=StepModel(0.01, 0.001, 0.0), slots=256)).slots == 8


def test_the_simulation_follows_the_seed_and_its_figures_are_summed_up_each_by_itself() -> None:
    # One request a second of 50 + 5 tokens: a third of what a replica serves.
    at = np.arange(60.0)
    trace = Trace("t", at, np.full(60, 50, np.int32), np.full(60, 5, np.int32), 60.0)
    engine = EngineModel(name="e", step=StepModel(0.01, 0.005, 0.0), slots=8, token_budget=512)
    sides = simulated_sides(trace, service("400m", 3), engine, ColdStart(median_s=8.0), seeds=2)
    assert [side.attainment for side in sides] == [1.0, 1.0]
    assert sides[0].replica_hours * 3600 == pytest.approx(60.0)
    # 10 ms and 5 for each of 50 tokens, then 10 and 5 for one.
    assert (sides[0].ttft_p50, sides[0].tpot_p50) == pytest.approx((0.26, 0.015))
    assert over(sides, max) == over(sides, min) == sides[0]


def test_stolen_time_is_a_share_of_what_has_passed(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 700 0 0 0 100 7 0\ncpu0 1 2 3\n")
    before = Ticks.now(stat)
    stat.write_text("cpu  150 0 100 720 0 0 0 130 9 0\ncpu0 1 2 3\n")
    assert Ticks.now(stat).stolen_since(before) == pytest.approx(0.3)
    assert before.stolen_since(before) == 0.0


@pytest.mark.parametrize(
    ("file", "wanted"), [("cpu/bed/cpu.shares", "262144"), ("bed/cpu.weight", "10000")], ids=["cgroup v1", "cgroup v2"]
)
def test_pods_come_first_by_either_version_of_cgroups(tmp_path: Path, file: str, wanted: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("100")
    put_pods_first("bed", tmp_path)
    assert (tmp_path / file).read_text() == wanted
    put_pods_first("another", tmp_path)
    assert not (tmp_path / "another").exists()
