"""What /load, /metrics and liveness say, on a clock that the test moves."""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import Any

import pytest
from engine_process import EngineProcess
from prometheus_client.parser import text_string_to_metric_families
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.link.messages import (
    Abort,
    Drafts,
    Failed,
    Output,
    Outputs,
    Ready,
    Stats,
    Submit,
    ToRuntime,
    ToServer,
)
from tidegate_engine.server.answers import Answer, Choice
from tidegate_engine.server.engine import Engine, RuntimeFailed, RuntimeGone
from tidegate_engine.server.errors import Overloaded
from tidegate_engine.server.load import LARGEST, Boot, load
from tidegate_engine.server.metrics import EngineCollector, exposition
from tidegate_engine.server.telemetry import NOTHING_YET, REQUEST_BOUNDS, TOKEN_BOUNDS, Telemetry

READY = Ready(128, 16, 512, 512, 4, "scripted", {})


class Script:
    """A link that plays messages and remembers what was sent."""

    def __init__(self, *messages: ToServer | None) -> None:
        self.messages = list(messages)
        self.sent: list[ToRuntime] = []

    def send(self, message: ToRuntime) -> None:
        self.sent.append(message)

    async def receive(self) -> ToServer | None:
        return self.messages.pop(0) if self.messages else None


def stats(**fields: Any) -> Stats:
    return Stats(**{name: getattr(NOTHING_YET, name) for name in Stats.__struct_fields__} | fields)


def answer(at: float, choices: int = 1, stops: tuple[str, ...] = ()) -> Answer:
    prompt = [97, 98, 99]
    tokens = [bytes([value]) for value in range(256)]
    params = SamplingParams(max_tokens=8)
    return Answer(uuid.uuid4().hex, 0, at, [Choice(index, prompt, params, tokens, stops) for index in range(choices)])


async def play(engine: Engine) -> None:
    with pytest.raises(RuntimeGone):
        await engine.run()


def snapshot(engine: Engine, telemetry: Telemetry, now: float) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(load(engine, telemetry, Boot("boot", 0.0), 4, "ready", now))
    return found


async def test_a_request_waits_until_its_first_token_and_is_counted_once_however_many_choices() -> None:
    telemetry, now = Telemetry(), time.monotonic()
    link = Script(READY, Outputs([Output(1, [97])], stats(running=2, kv_blocks_used=2, steps=1)))
    engine = Engine(link, telemetry, 4, 4)
    engine.submit(answer(now - 2, choices=2))
    before = snapshot(engine, telemetry, now)
    assert (before["running"], before["waiting"], before["oldest_waiting_s"]) == (0, 1, 2.0)
    assert sum(before["waiting_ages"]["bins"].values()) == 1
    assert before["last_step_age_s"] is None
    await play(engine)
    after = snapshot(engine, telemetry, time.monotonic())
    assert (after["running"], after["waiting"], after["oldest_waiting_s"]) == (1, 0, 0.0)
    assert after["oldest_unfinished_s"] >= 2.0
    assert after["kv_blocks"] == {"total": 128, "used": 2}
    assert after["last_step_age_s"] < 1
    assert sum(after["sketches"]["ttft"]["bins"].values()) == 1


async def test_latencies_of_a_finished_answer_reach_sketches_and_of_an_aborted_one_do_not() -> None:
    telemetry, now = Telemetry(), time.monotonic()
    done = Output(1, [97], None, FinishReason.LENGTH)
    link = Script(READY, Outputs([Output(1, [97]), Output(2, [97])], stats(steps=1)), Outputs([done], stats(steps=2)))
    engine = Engine(link, telemetry, 4, 4)
    engine.submit(answer(now))
    left = answer(now)
    engine.submit(left)
    await play(engine)
    engine.abort(left)
    found = snapshot(engine, telemetry, time.monotonic())
    assert {name: sum(sketch["bins"].values()) for name, sketch in found["sketches"].items()} == {
        "ttft": 2, "tpot": 1, "e2e": 1,
    }  # fmt: skip
    assert (found["counters"]["received"], found["counters"]["finished"], found["running"]) == (2, 2, 0)
    assert link.sent[-1] == Abort([2])
    assert telemetry.finish_reasons == {"stop": 0, "length": 1, "abort": 1}


async def test_a_stop_string_found_here_is_an_abort_there_and_late_tokens_are_ignored() -> None:
    telemetry = Telemetry()
    late = Outputs([Output(1, [97])], stats(steps=2))
    link = Script(READY, Outputs([Output(1, list(b"xEN")), Output(2, [97])], stats(steps=1)))
    link.messages += [Outputs([Output(1, list(b"Dy"))], stats(steps=2)), late]
    engine = Engine(link, telemetry, 4, 4)
    stopping = answer(0.0, stops=("END",))
    engine.submit(stopping)
    engine.submit(answer(0.0))
    await play(engine)
    assert stopping.choices[0].take().text == "x"
    assert stopping.choices[0].finish_reason is FinishReason.STOP
    assert [message for message in link.sent if isinstance(message, Abort)] == [Abort([1])]
    assert telemetry.generated_tokens == 5
    assert len(engine.answers) == 1


def test_each_choice_has_an_id_of_its_own_and_a_request_that_is_too_much_takes_no_place() -> None:
    link = Script()
    engine = Engine(link, Telemetry(), 2, 1)
    engine.submit(answer(0.0, choices=2))
    with pytest.raises(Overloaded):
        engine.submit(answer(0.0, choices=2))
    engine.submit(answer(0.0))
    assert [message.id for message in link.sent if isinstance(message, Submit)] == [1, 2, 3]


async def test_a_runtime_that_says_why_it_fails_is_believed() -> None:
    with pytest.raises(RuntimeFailed, match="no memory") as caught:
        await Engine(Script(Failed("no memory", 2)), Telemetry(), 1, 1).run()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("waited", "last_step_ago", "slowest", "stalled"),
    [
        pytest.param(None, 1000.0, 1.0, False, id="nothing to do is no stall, however long"),
        pytest.param(59.0, None, 0.0, False, id="under a minute is no stall"),
        pytest.param(61.0, None, 0.0, True, id="a minute without a first step is one"),
        pytest.param(500.0, 1.0, 1.0, False, id="long work whose steps come is no stall"),
        pytest.param(61.0, 1000.0, 1.0, True, id="the wait counts from the arrival, not from the last step of before"),
        pytest.param(59.0, 1000.0, 1.0, False, id="new work after a long silence has its own minute"),
        pytest.param(90.0, 90.0, 10.0, False, id="slow steps are given ten of the slowest"),
        pytest.param(101.0, 101.0, 10.0, True, id="more than ten of the slowest steps are not waited for"),
    ],
)
def test_liveness(waited: float | None, last_step_ago: float | None, slowest: float, stalled: bool) -> None:
    now, telemetry = 10_000.0, Telemetry()
    engine = Engine(Script(), telemetry, 4, 4)
    if last_step_ago is not None:
        telemetry.step(stats(steps=1, slowest_step_seconds=slowest), now - last_step_ago)
    if waited is not None:
        engine.submit(answer(now - waited))
    assert engine.stalled(now) is stalled


def test_a_report_without_a_new_step_does_not_hide_a_stall() -> None:
    telemetry = Telemetry()
    telemetry.step(stats(steps=5), 100.0)
    telemetry.step(stats(steps=5), 200.0)
    assert telemetry.last_step_at == 100.0


def test_wild_latencies_keep_the_load_under_its_limit_and_the_slowest_visible() -> None:
    telemetry, source = Telemetry(), random.Random(1)
    for _ in range(20_000):
        for sketch in (telemetry.ttft, telemetry.tpot, telemetry.e2e):
            sketch.add(10 ** source.uniform(-6, 7))
    engine = Engine(Script(), telemetry, 4, 100_000)
    for index in range(2000):
        engine.submit(answer(-(1.01 ** (index % 1500))))
    body = load(engine, telemetry, Boot("b", 0.0), 4, "ready", 1e4)
    assert len(body) <= LARGEST
    found = json.loads(body)
    assert sum(found["sketches"]["ttft"]["bins"].values()) == 20_000
    assert max(map(int, found["sketches"]["e2e"]["bins"])) == max(telemetry.e2e.bins)


def test_retry_after_is_the_time_the_queue_takes_at_the_measured_rate() -> None:
    telemetry = Telemetry()
    assert telemetry.retry_after(10, oldest=7.2, now=0.0) == 7
    for second in range(20):
        telemetry.end(answer(0.0), 100.0 + second)
    assert telemetry.retry_after(10, oldest=7.2, now=120.0) == 10
    assert telemetry.retry_after(1000, oldest=7.2, now=120.0) == 60
    assert telemetry.retry_after(1, oldest=0.0, now=1000.0) == 1


def test_bounds_see_tokens_of_one_millisecond() -> None:
    assert [bound for bound in TOKEN_BOUNDS if bound < 0.005] == [0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004]
    assert sorted(TOKEN_BOUNDS) == list(TOKEN_BOUNDS)
    assert sorted(REQUEST_BOUNDS) == list(REQUEST_BOUNDS)


def test_metrics_are_vllms_families_under_our_name(engine: EngineProcess) -> None:
    assert engine.chat("abc", max_tokens=4).status_code == 200
    families = {family.name: family for family in text_string_to_metric_families(engine.admin.get("/metrics").text)}
    assert {
        "tidegate_num_requests_running", "tidegate_num_requests_waiting", "tidegate_kv_cache_usage_perc",
        "tidegate_prompt_tokens", "tidegate_generation_tokens", "tidegate_prefix_cache_queries",
        "tidegate_prefix_cache_hits", "tidegate_num_preemptions", "tidegate_request_success",
        "tidegate_time_to_first_token_seconds", "tidegate_inter_token_latency_seconds",
        "tidegate_time_per_output_token_seconds", "tidegate_e2e_request_latency_seconds",
    } <= set(families)  # fmt: skip
    samples = {
        (sample.name, sample.labels.get("finished_reason"), sample.labels.get("le")): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["tidegate_request_success_total", "length", None] >= 1
    assert samples["tidegate_generation_tokens_total", None, None] >= 4
    assert samples["tidegate_time_to_first_token_seconds_count", None, None] >= 1
    assert samples["tidegate_inter_token_latency_seconds_bucket", None, "+Inf"] >= 3


def test_metrics_of_guesses_have_vllms_names() -> None:
    telemetry = Telemetry()
    telemetry.step(stats(steps=9, drafts=Drafts(5, 20, 12, [5, 4, 3, 0])), 1.0)
    text = exposition(EngineCollector(telemetry, lambda: None, "m")).decode()
    samples = {
        (sample.name.removeprefix("tidegate_spec_decode_"), sample.labels.get("position")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("tidegate_spec_decode_")
    }
    assert samples == {
        ("num_drafts_total", None): 5,
        ("num_draft_tokens_total", None): 20,
        ("num_accepted_tokens_total", None): 12,
        ("draft_acceptance_rate", None): 0.6,
        ("num_accepted_tokens_per_pos_total", "0"): 5,
        ("num_accepted_tokens_per_pos_total", "1"): 4,
        ("num_accepted_tokens_per_pos_total", "2"): 3,
        ("num_accepted_tokens_per_pos_total", "3"): 0,
    }
