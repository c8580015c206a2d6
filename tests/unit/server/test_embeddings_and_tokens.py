"""Embeddings, tokenize and detokenize: shapes, orders, refusals. The runtime's every vector is (0.6, 0, -0.8)."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from engine_process import NAME, EngineProcess

VECTOR = [pytest.approx(0.6), 0.0, pytest.approx(-0.8)]


def embed(engine: EngineProcess, **fields: Any) -> Any:
    return engine.http.post("/v1/embeddings", json={"model": NAME, **fields})


@pytest.mark.parametrize(
    ("given", "count", "tokens"),
    [
        pytest.param("abc", 1, 3, id="a text"),
        pytest.param(["abc", "de"], 2, 5, id="a list of texts"),
        pytest.param([97, 98], 1, 2, id="token ids"),
        pytest.param([[97], [98, 99], [100]], 3, 4, id="a list of lists of ids"),
    ],
)
def test_an_input_may_have_four_shapes(engine: EngineProcess, given: Any, count: int, tokens: int) -> None:
    body = embed(engine, input=given).json()
    assert body["object"] == "list"
    assert body["model"] == NAME
    assert [entry["index"] for entry in body["data"]] == list(range(count))
    assert [entry["embedding"] for entry in body["data"]] == [VECTOR] * count
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    engine.wait_idle()


def test_base64_is_little_endian_float32(engine: EngineProcess) -> None:
    (entry,) = embed(engine, input="abc", encoding_format="base64", user="u").json()["data"]
    assert list(struct.unpack("<3f", base64.b64decode(entry["embedding"]))) == VECTOR


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        pytest.param({}, "input", "missing", id="no input"),
        pytest.param({"input": ""}, "input", "empty", id="an empty text"),
        pytest.param({"input": ["a", ""]}, "input[1]", "empty", id="an empty text among others"),
        pytest.param({"input": [600]}, "input", "600", id="an id out of the vocabulary"),
        pytest.param({"input": ["a", 1]}, "input", "mixes", id="text and ids mixed"),
        pytest.param({"input": "a", "dimensions": 2}, "dimensions", "2", id="fewer dimensions"),
        pytest.param({"input": "a", "encoding_format": "hex"}, "encoding_format", "hex", id="an odd encoding"),
        pytest.param({"input": ["a"] * 9}, "input", "9", id="more inputs than the engine holds"),
        pytest.param({"input": "a" * 512}, "input", "512", id="an input that fills all"),
        pytest.param({"input": "a", "temperature": 1}, "temperature", "leave it out", id="an answer's field"),
    ],
)
def test_an_embedding_is_refused_with_the_name_of_the_field(
    engine: EngineProcess, fields: dict[str, Any], param: str, said: str
) -> None:
    refused = embed(engine, **fields)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == param
    assert said in refused.json()["error"]["message"]


def prompt_tokens(engine: EngineProcess) -> float:
    lines = engine.admin.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("tidegate_prompt_tokens_total")).split()[-1])


def test_embeddings_count_as_requests_and_generate_nothing(engine: EngineProcess) -> None:
    before, tokens = engine.load()["counters"], prompt_tokens(engine)
    assert embed(engine, input=["a", "b"]).status_code == 200
    after = engine.load()["counters"]
    assert after["received"] == before["received"] + 1
    assert after["finished"] == before["finished"] + 1
    assert prompt_tokens(engine) == tokens + 2
    assert embed(engine, input="a", model="other").status_code == 404


def test_text_and_messages_become_the_tokens_that_the_model_is_given(engine: EngineProcess) -> None:
    found = engine.http.post("/tokenize", json={"model": NAME, "prompt": "ab", "return_token_strs": True}).json()
    assert found == {"count": 2, "max_model_len": 512, "tokens": [97, 98], "token_strs": ["a", "b"]}
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]}]
    found = engine.http.post("/tokenize", json={"messages": messages, "add_generation_prompt": True}).json()
    assert (found["tokens"], found["token_strs"]) == ([120, 121], None)
    assert engine.http.post("/tokenize", json={"prompt": ""}).json()["count"] == 0


def test_what_tokenize_gives_detokenize_takes_back(engine: EngineProcess) -> None:
    text = "naïve 😀\n"
    tokens = engine.http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert engine.http.post("/detokenize", json={"model": NAME, "tokens": tokens}).json() == {"prompt": text}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        pytest.param("/tokenize", {}, "prompt", id="neither text nor messages"),
        pytest.param("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt", id="both"),
        pytest.param("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content", id="an empty message"),
        pytest.param("/detokenize", {}, "tokens", id="no tokens"),
        pytest.param("/detokenize", {"tokens": [512]}, "tokens", id="an id out of the vocabulary"),
        pytest.param("/detokenize", {"tokens": [-1]}, "tokens", id="a negative id"),
        pytest.param("/detokenize", {"tokens": ["a"]}, "tokens[0]", id="a word as an id"),
    ],
)
def test_what_cannot_be_tokenized_is_refused_with_the_name_of_the_field(
    engine: EngineProcess, path: str, fields: dict[str, Any], param: str
) -> None:
    refused = engine.http.post(path, json=fields)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == param
    assert engine.http.post(path, json={"model": "other", "prompt": "a", "tokens": [1]}).status_code in (400, 404)
