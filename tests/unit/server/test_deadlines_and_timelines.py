"""Requests that are out of time are ended and say so; every request's course can be asked for, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engine_process import NAME, EngineProcess, wait_until
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.link.messages import Event, Output
from tidegate_engine.server.answers import Answer, Choice
from tidegate_engine.server.errors import DeadlineExceeded
from tidegate_engine.server.timeline import Timelines


@pytest.fixture(scope="module")
def slow(tiny: Path) -> Iterator[EngineProcess]:
    """A token takes 10 ms."""
    with EngineProcess(tiny, fake=["--pace", "0.01"]) as engine:
        yield engine.wait_ready()


def body(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "prompt": "abc", "max_tokens": 500, **fields}


def expired(engine: EngineProcess) -> int:
    lines = engine.admin.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("tidegate_requests_expired_total")).split()[-1]))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        pytest.param("/v1/completions", {}, id="an answer"),
        pytest.param("/v1/completions", {"n": 3}, id="three answers"),
        pytest.param("/v1/completions", {"deadline_s": 1e-9}, id="no time at all"),
        pytest.param(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a"}], "prompt": None, "stream": True, "deadline_s": 1e-9},
            id="a stream that never began",
        ),
    ],
)
def test_a_request_out_of_time_is_ended_with_the_reason_and_frees_its_blocks(
    slow: EngineProcess, path: str, fields: dict[str, Any]
) -> None:
    before, counters = expired(slow), slow.load()["counters"]
    asked = body(deadline_s=0.2) | fields
    answer = slow.http.post(path, json={name: value for name, value in asked.items() if value is not None})
    assert answer.status_code == 504, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("timeout_error", "deadline_exceeded", "deadline_s")
    assert answer.headers["x-should-retry"] == "false"
    slow.wait_idle()
    assert expired(slow) == before + 1
    after = slow.load()["counters"]
    assert after["finished"] == counters["finished"] + 1
    assert after["generated_tokens"] < counters["generated_tokens"] + 500, "it went on to its end"
    timeline = slow.admin.get(f"/debug/requests/{answer.headers['x-request-id']}").json()
    assert (timeline["state"], timeline["ended"]) == ("ended", "deadline_exceeded")


def test_a_stream_out_of_time_ends_with_an_error_event_and_done(slow: EngineProcess) -> None:
    answer = slow.http.post("/v1/completions", json=body(deadline_s=1.5, stream=True))
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert answer.status_code == 200
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["error"]["code"] == "deadline_exceeded"
    assert len(lines) > 3
    slow.wait_idle()


def test_a_request_that_makes_its_deadline_does_not_notice_it(slow: EngineProcess) -> None:
    answer = slow.http.post("/v1/completions", json=body(max_tokens=3, deadline_s=30, priority=-5))
    assert answer.status_code == 200
    timeline = slow.admin.get(f"/debug/requests/{answer.json()['id']}").json()
    assert (timeline["ended"], timeline["priority"], timeline["deadline_s"]) == ("finished", -5, 30.0)


def test_a_request_can_be_watched_while_it_runs_and_after_its_end(slow: EngineProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(slow.http.post, "/v1/completions", json=body(n=2, max_tokens=300))
        wait_until(lambda: slow.load()["running"] == 1, "running")
        newest = slow.admin.get("/debug/requests").json()["requests"][0]
        assert newest["state"] == "running"
        course = f"/debug/requests/{newest['id']}"
        wait_until(lambda: slow.admin.get(course).json()["choices"][0]["tokens"] > 0, "a token")
        running = slow.admin.get(course).json()
        assert running["ended"] is None
        assert 0 < running["choices"][0]["tokens"] < 300
        answer = asked.result()
    assert answer.json()["id"] == answer.headers["x-request-id"] == newest["id"]
    ended = slow.admin.get(f"/debug/requests/{newest['id']}").json()
    assert (ended["state"], ended["ended"]) == ("ended", "finished")
    for index, choice in enumerate(ended["choices"]):
        assert choice["index"] == index
        assert (choice["prompt_tokens"], choice["tokens"], choice["steps"]) == (3, 300, 300)
        assert choice["finish_reason"] == "length"
        assert [(chunk["start"], chunk["tokens"]) for chunk in choice["chunks"]] == [(0, 3)]
        assert 0 <= choice["queued_s"] <= choice["first_token_s"] < choice["last_token_s"] <= ended["age_s"]
    assert "abc" not in json.dumps(ended), "no text"


def test_a_stream_and_an_embedding_carry_their_id_and_a_client_that_left_is_told_apart(slow: EngineProcess) -> None:
    embedded = slow.http.post("/v1/embeddings", json={"model": NAME, "input": "a"})
    assert slow.admin.get(f"/debug/requests/{embedded.headers['x-request-id']}").json()["ended"] == "finished"
    with slow.http.stream("POST", "/v1/completions", json=body(stream=True)) as answer:
        id = answer.headers["x-request-id"]
        assert id in next(answer.iter_lines())
    slow.wait_idle()
    assert slow.admin.get(f"/debug/requests/{id}").json()["ended"] == "client_left"


def test_an_unknown_request_is_404(slow: EngineProcess) -> None:
    assert slow.admin.get("/debug/requests/cmpl-0").status_code == 404


def answer(id: str, prompt_tokens: int = 100) -> Answer:
    choice = Choice(0, [1] * prompt_tokens, SamplingParams(max_tokens=9), [b"a", b"b"])
    return Answer(id, 0, 10.0, [choice])


def test_only_the_last_are_kept_and_of_each_a_bounded_number_of_events() -> None:
    timelines = Timelines(kept=3)
    for number in range(10):
        one = answer(str(number))
        timelines.begin(one)
        for step in range(200):
            timelines.event(one, one.choices[0], Event(1, step + 1, 11.0 + step, step, 1))
            timelines.event(one, one.choices[0], Event(1, step + 1, 11.0 + step, 0, 0))
        timelines.end(one, 300.0)
        timelines.end(one, 400.0)
    assert [known.id for known in timelines.known(500.0).requests] == ["9", "8", "7"]
    assert timelines.find("6", 500.0) is None
    found = timelines.find("9", 500.0)
    assert found is not None
    (choice,) = found.choices
    assert (len(choice.chunks), choice.num_chunks) == (64, 200)
    assert (len(choice.preemptions), choice.num_preemptions) == (64, 200)
    assert (choice.steps, found.age_s) == (200, 290.0)


def test_a_course_reads_as_it_happened() -> None:
    timelines, one = Timelines(), answer("x")
    (choice,) = one.choices
    timelines.begin(one)
    waiting = timelines.find("x", 11.0)
    assert waiting is not None
    assert (waiting.state, waiting.choices[0].queued_s) == ("waiting", None)
    for event in (Event(1, 5, 12.0, 32, 40), Event(1, 6, 12.5, 72, 20), Event(1, 7, 13.0, 0, 0)):
        timelines.event(one, choice, event)
    for event in (Event(1, 9, 14.0, 0, 64), Event(1, 10, 14.5, 64, 36)):
        timelines.event(one, choice, event)
    timelines.step(one, choice, 10)
    choice.push(Output(1, [1], None, FinishReason.LENGTH, 32), 15.0)
    timelines.end(one, 15.0)
    found = timelines.find("x", 99.0)
    assert found is not None
    (course,) = found.choices
    assert (course.queued_s, course.cached_tokens, course.steps) == (2.0, 32, 4)
    assert [(chunk.step, chunk.start, chunk.tokens) for chunk in course.chunks] == [
        (5, 32, 40),
        (6, 72, 20),
        (9, 0, 64),
        (10, 64, 36),
    ]
    assert [(lost.at_s, lost.step) for lost in course.preemptions] == [(3.0, 7)]
    assert (course.first_token_s, found.age_s, found.ended) == (5.0, 5.0, "finished")


def test_what_ended_by_an_error_is_named_by_its_code() -> None:
    timelines, one = Timelines(), answer("x")
    timelines.begin(one)
    one.failure = DeadlineExceeded("too late")
    timelines.end(one, 11.0)
    found = timelines.find("x", 12.0)
    assert found is not None
    assert found.ended == "deadline_exceeded"
