"""Adapters are models to clients; the runtime's answer begins as many tokens later as the adapter's number says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_process import NAME, EngineProcess


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[EngineProcess]:
    with EngineProcess(tiny, "--lora", "sql=/a", "--lora", "verse=/b", fake=[]) as engine:
        yield engine.wait_ready()


def test_all_are_listed(engine: EngineProcess) -> None:
    assert [card["id"] for card in engine.http.get("/v1/models").json()["data"]] == [NAME, "sql", "verse"]
    assert engine.http.get("/v1/models/verse").json()["id"] == "verse"


@pytest.mark.parametrize(("name", "text"), [(NAME, "abc"), ("sql", "bca"), ("verse", "cab")])
def test_the_one_that_is_asked_for_answers_under_its_name(engine: EngineProcess, name: str, text: str) -> None:
    body = {"model": name, "prompt": "abc", "max_tokens": 3, "temperature": 0}
    found = engine.http.post("/v1/completions", json=body).json()
    assert (found["choices"][0]["text"], found["model"]) == (text, name)


def test_another_name_is_refused_with_those_there_are(engine: EngineProcess) -> None:
    answer = engine.http.post("/v1/completions", json={"model": "prose", "prompt": "abc"})
    assert answer.status_code == 404
    assert f"give '{NAME}' or 'sql' or 'verse'" in answer.json()["error"]["message"]


def test_requests_for_adapters_are_load_like_any_other(engine: EngineProcess) -> None:
    """Fault 6: scaling was blind to them, since they carry another label."""
    before = engine.admin.get("/load").json()["counters"]["received"]
    for name in (NAME, "sql", "verse"):
        engine.http.post("/v1/completions", json={"model": name, "prompt": "abc", "max_tokens": 1})
    assert engine.admin.get("/load").json()["counters"]["received"] == before + 3
