"""What the endpoints accept, what they refuse, and what they answer; the runtime repeats the prompt's bytes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from engine_process import NAME, EngineProcess
from tiny_tokenizer import END


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": "abc"}], "max_tokens": 3, **fields}


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "prompt": "abc", "max_tokens": 3, **fields}


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


BAD_CHATS = [
    pytest.param({"temperatur": 0.5}, "temperatur", "temperature", id="a misspelt field, with a guess"),
    pytest.param({"frobnicate": None}, "frobnicate", "leave it out", id="an unknown field, null or not"),
    pytest.param({"temperature": "hot"}, "temperature", '"hot"', id="a temperature in words"),
    pytest.param({"temperature": 3}, "temperature", "3", id="a temperature over two"),
    pytest.param({"temperature": -0.1}, "temperature", "-0.1", id="a negative temperature"),
    pytest.param({"top_p": 0}, "top_p", "0", id="a nucleus of nothing"),
    pytest.param({"top_k": -2}, "top_k", "-2", id="a negative top_k"),
    pytest.param({"top_k": 1.5}, "top_k", "1.5", id="a fraction where a whole number belongs"),
    pytest.param({"max_tokens": 0}, "max_tokens", "0", id="an answer of no tokens"),
    pytest.param({"max_tokens": True}, "max_tokens", "true", id="a truth where a number belongs"),
    pytest.param({"max_tokens": 4, "max_completion_tokens": 5}, "max_tokens", "5", id="two lengths that contradict"),
    pytest.param({"min_tokens": 9}, "min_tokens", "9", id="a shortest answer over the longest"),
    pytest.param({"n": 0}, "n", "0", id="no answer at all"),
    pytest.param({"n": 9}, "n", "9", id="more answers than the engine holds"),
    pytest.param({"stop": ""}, "stop", '""', id="an empty stop string"),
    pytest.param({"stop": ["a", 1]}, "stop[1]", "1", id="a number as a stop string"),
    pytest.param({"logit_bias": {"512": 1}}, "logit_bias", "512", id="a biased id out of the vocabulary"),
    pytest.param({"logit_bias": {"-1": 1}}, "logit_bias", "-1", id="a negative biased id"),
    pytest.param({"logit_bias": {"hello": 1}}, "logit_bias", "hello", id="a biased word"),
    pytest.param({"logit_bias": {"1": 101}}, "logit_bias", "101", id="a bias over a hundred"),
    pytest.param({"stop_token_ids": [512]}, "stop_token_ids", "512", id="a stop id out of the vocabulary"),
    pytest.param({"top_logprobs": 2}, "top_logprobs", "logprobs", id="top_logprobs without logprobs"),
    pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "21", id="too many top_logprobs"),
    pytest.param(
        {"stream_options": {"include_usage": True}}, "stream_options", "stream", id="stream_options unstreamed"
    ),
    pytest.param(
        {"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "leave it out", id="an unknown stream option"
    ),
    pytest.param({"tool_choice": "required"}, "tool_choice", "no tools", id="a tool that must be called"),
    pytest.param({"store": True}, "store", "true", id="storing"),
    pytest.param({"store": 0}, "store", "0", id="a zero where a truth belongs"),
    pytest.param({"service_tier": "priority"}, "service_tier", "priority", id="a tier that there is not"),
    pytest.param({"best_of": 2}, "best_of", "2", id="best_of"),
    pytest.param({"priority": 1.5}, "priority", "1.5", id="a fraction of urgency"),
    pytest.param({"priority": 1001}, "priority", "1001", id="a priority out of bounds"),
    pytest.param({"deadline_s": 0}, "deadline_s", "0", id="a deadline of no time"),
    pytest.param({"seed": 2**63}, "seed", str(2**63), id="a seed over 64 bits"),
    pytest.param({"messages": []}, "messages", "[]", id="no messages"),
    pytest.param({"messages": [{"role": "user"}]}, "messages[0].content", "missing", id="a message without content"),
    pytest.param({"messages": [{"content": "x"}]}, "messages[0].role", "missing", id="a message without a role"),
    pytest.param(
        {"messages": [{"role": "pirate", "content": "x"}]}, "messages[0].role", "expected system", id="an odd role"
    ),
    pytest.param({"messages": [{"role": "user", "content": ""}]}, "messages", "empty", id="a prompt of nothing"),
    pytest.param(
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
        "expected text",
        id="an image",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
        "messages",
        "the system message comes first",
        id="messages that the template refuses",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "x" * 512}]}, "messages", "512", id="a prompt that fills all"
    ),
    pytest.param({"model": 7}, "model", "7", id="a number as the model's name"),
    pytest.param({"stream": "yes"}, "stream", '"yes"', id="a stream in words"),
]

BAD_COMPLETIONS = [
    pytest.param({"prompt": ""}, "prompt", "empty", id="an empty prompt"),
    pytest.param({"prompt": []}, "prompt", "[]", id="a list of no prompts"),
    pytest.param({"prompt": [[]]}, "prompt", "empty", id="an empty list of ids"),
    pytest.param({"prompt": ["a", ""]}, "prompt[1]", "empty", id="an empty prompt among others"),
    pytest.param({"prompt": ["a", 1]}, "prompt", "mixes", id="text and ids mixed"),
    pytest.param({"prompt": [1, 512]}, "prompt", "512", id="an id out of the vocabulary"),
    pytest.param({"prompt": [[1], [-1]]}, "prompt[1]", "-1", id="a negative id in a list of lists"),
    pytest.param({"prompt": [1.5]}, "prompt[0]", "1.5", id="a fraction as an id"),
    pytest.param({"prompt": {"text": "a"}}, "prompt", "text", id="an object as the prompt"),
    pytest.param({"prompt": [1] * 512}, "prompt", "512", id="more ids than the context holds"),
    pytest.param({"logprobs": True}, "logprobs", "true", id="chat's way to ask for logprobs"),
    pytest.param({"logprobs": 21}, "logprobs", "21", id="too many logprobs"),
    pytest.param({"max_tokens": 0}, "max_tokens", "echo", id="no answer, and no prompt repeated either"),
    pytest.param({"suffix": "x"}, "suffix", "x", id="a suffix"),
    pytest.param({"messages": []}, "messages", "leave it out", id="a chat's field"),
]


def refused(answer: httpx.Response, param: str, said: str) -> None:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param in error["message"]
    assert said in error["message"]
    assert "\n" not in error["message"]


@pytest.mark.parametrize(("fields", "param", "said"), BAD_CHATS)
def test_a_chat_is_refused_with_the_name_of_the_field(
    engine: EngineProcess, fields: dict[str, Any], param: str, said: str
) -> None:
    refused(engine.http.post("/v1/chat/completions", json=chat(**fields)), param, said)


@pytest.mark.parametrize(("fields", "param", "said"), BAD_COMPLETIONS)
def test_a_completion_is_refused_with_the_name_of_the_field(
    engine: EngineProcess, fields: dict[str, Any], param: str, said: str
) -> None:
    refused(engine.http.post("/v1/completions", json=completion(**fields)), param, said)


def test_a_request_without_messages_or_prompt_is_told_which_is_missing(engine: EngineProcess) -> None:
    refused(engine.http.post("/v1/chat/completions", json={"model": NAME}), "messages", "missing")
    refused(engine.http.post("/v1/completions", json={"model": NAME}), "prompt", "missing")
    refused(engine.http.post("/v1/completions", json={"prompt": "a"}), "model", "missing")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"7", b'{"a":1}x', b"\xff\xfe", b"[" * 100_000, b'{"prompt":"\\ud83d"}', b'{"temperature":NaN}'],
)
def test_a_body_that_is_no_json_object_is_refused(engine: EngineProcess, body: bytes) -> None:
    answer = engine.http.post("/v1/completions", content=body)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "tools": [], "user": "u", "metadata": {"a": "b"}, "store": False, "logit_bias": {}, "stop": []},
        {"response_format": {"type": "text"}, "stream_options": None, "parallel_tool_calls": True, "seed": None},
        {"service_tier": "auto", "function_call": "none", "functions": [], "tool_choice": "auto", "stop": None},
        {"service_tier": "default", "tool_choice": "none", "frequency_penalty": None, "top_p": None, "logprobs": None},
        {"modalities": ["text"], "audio": None, "prediction": None, "top_logprobs": None, "max_completion_tokens": 3},
        {"logprobs": False, "top_logprobs": 0, "top_k": -1, "best_of": 1, "temperature": 0, "presence_penalty": 0},
    ],
)
def test_null_and_values_that_change_nothing_pass(engine: EngineProcess, fields: dict[str, Any]) -> None:
    answer = engine.http.post("/v1/chat/completions", json=chat(**fields))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "abc"


def test_an_assistants_message_can_be_sent_back_as_it_came(engine: EngineProcess) -> None:
    message = engine.http.post("/v1/chat/completions", json=chat()).json()["choices"][0]["message"]
    more = [{"role": "user", "content": "x"}, {**message, "tool_calls": None, "annotations": []}]
    answer = engine.http.post("/v1/chat/completions", json=chat(messages=more, max_tokens=4))
    assert answer.json()["choices"][0]["message"]["content"] == "xabc"


def test_content_in_parts_is_their_text_together_and_a_developer_speaks_as_the_system(engine: EngineProcess) -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    messages = [{"role": "developer", "content": "s"}, {"role": "user", "content": parts}]
    answer = engine.http.post("/v1/chat/completions", json=chat(messages=messages, max_tokens=4))
    assert answer.json()["choices"][0]["message"]["content"] == "sabc"


def test_an_unknown_model_is_404_with_the_name_that_is_served(engine: EngineProcess) -> None:
    answer = engine.http.post("/v1/chat/completions", json=chat(model="gpt-4"))
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert NAME in answer.json()["error"]["message"]
    assert engine.http.get("/v1/models/gpt-4").status_code == 404
    assert engine.http.get(f"/v1/models/{NAME}").json()["id"] == NAME
    assert [model["id"] for model in engine.http.get("/v1/models").json()["data"]] == [NAME]


def test_unknown_paths_and_methods_are_errors_of_the_same_shape(engine: EngineProcess) -> None:
    for answer, status in ((engine.http.get("/v1/audio"), 404), (engine.http.get("/v1/completions"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_over_the_limit_is_413(engine: EngineProcess) -> None:
    assert engine.http.post("/v1/completions", content=b" " * (9 * 2**20)).status_code == 413

    def parts() -> Any:
        for _ in range(9):
            yield b" " * 2**20

    assert engine.http.post("/v1/completions", content=parts()).status_code == 413


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        pytest.param("abc", ["abc"], id="a text"),
        pytest.param(["abc", "xyz"], ["abc", "xyz"], id="a list of texts"),
        pytest.param([97, 98], ["aba"], id="token ids"),
        pytest.param([[97], [98, 99]], ["aaa", "bcb"], id="a list of lists of ids"),
    ],
)
def test_a_prompt_may_have_four_shapes(engine: EngineProcess, prompt: Any, texts: list[str]) -> None:
    body = engine.http.post("/v1/completions", json=completion(prompt=prompt)).json()
    assert [choice["text"] for choice in body["choices"]] == texts
    assert [choice["index"] for choice in body["choices"]] == list(range(len(texts)))


def test_prompts_times_n_choices_are_numbered_prompt_by_prompt(engine: EngineProcess) -> None:
    body = engine.http.post("/v1/completions", json=completion(prompt=["a", "b"], n=2, max_tokens=1)).json()
    assert [choice["text"] for choice in body["choices"]] == ["a", "a", "b", "b"]
    assert body["usage"]["prompt_tokens"] == 2
    assert body["usage"]["completion_tokens"] == 4


def test_echo_puts_the_prompt_before_the_answer(engine: EngineProcess) -> None:
    body = engine.http.post("/v1/completions", json=completion(echo=True, max_tokens=1)).json()
    assert body["choices"][0]["text"] == "abca"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_echo_with_logprobs_lists_the_prompts_tokens_before_the_answers(engine: EngineProcess, stream: bool) -> None:
    body = completion(prompt="aéb", echo=True, logprobs=1, max_tokens=2, stream=stream)
    answer = engine.http.post("/v1/completions", json=body)
    parts = [part for chunk in events(answer) for part in chunk["choices"]] if stream else answer.json()["choices"]
    found = {name: [one for part in parts for one in part["logprobs"][name]] for name in parts[0]["logprobs"]}
    assert "".join(part["text"] for part in parts) == "aéba"
    assert found["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "b", "a", "bytes:\\xc3"]
    assert found["text_offset"] == [0, 1, 1, 2, 3, 4]
    assert found["token_logprobs"] == [None, -1.0, -2.0, -3.0, -0.5, -0.5]
    assert found["top_logprobs"][0] is None
    assert [len(top) for top in found["top_logprobs"][1:]] == [1] * 5


def test_a_prompt_can_be_scored_without_an_answer(engine: EngineProcess) -> None:
    body = engine.http.post("/v1/completions", json=completion(echo=True, logprobs=0, max_tokens=0)).json()
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0]
    assert choice["logprobs"]["top_logprobs"] is None
    assert body["usage"]["completion_tokens"] == 0


def test_a_stream_has_one_role_one_finish_reason_and_usage_only_where_asked(engine: EngineProcess) -> None:
    found = events(engine.http.post("/v1/chat/completions", json=chat(stream=True)))
    deltas = [choice for chunk in found for choice in chunk["choices"]]
    assert [delta["delta"].get("role") for delta in deltas].count("assistant") == 1
    assert [delta["finish_reason"] for delta in deltas if delta["finish_reason"]] == ["length"]
    assert "".join(delta["delta"].get("content", "") for delta in deltas) == "abc"
    assert all("usage" not in chunk for chunk in found)
    assert len({chunk["id"] for chunk in found}) == 1


def test_a_stream_that_asks_for_usage_gets_it_once_at_the_end(engine: EngineProcess) -> None:
    options = {"include_usage": True}
    found = events(engine.http.post("/v1/chat/completions", json=chat(stream=True, stream_options=options)))
    assert [chunk["usage"] for chunk in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("prompt", "fields", "text", "reason"),
    [
        pytest.param("ab😀cd", {}, "ab😀cdab", "length", id="an emoji is never cut"),
        pytest.param("😀", {"max_tokens": 3}, "", "length", id="half an emoji at the end is left out"),
        pytest.param("one END two", {"stop": "END"}, "one ", "stop", id="a stop string over three tokens"),
        pytest.param("one ENx", {"stop": "END"}, "one ENxone", "length", id="a stop string that never comes"),
        pytest.param(
            "one EN", {"stop": "END", "max_tokens": 6}, "one EN", "length", id="its beginning at the very end"
        ),
        pytest.param(
            "aENDb", {"stop": ["END"], "include_stop_str_in_output": True}, "aEND", "stop", id="kept if asked"
        ),
        pytest.param([97, END, 98], {}, "a", "stop", id="the end token is not text"),
        pytest.param([97, END, 98], {"ignore_eos": True, "max_tokens": 4}, "aba", "length", id="unless it is ignored"),
        pytest.param("abc", {"stop_token_ids": [98]}, "a", "stop", id="a stop token is not text"),
        pytest.param("abab", {"stop": "b", "min_tokens": 3}, "aba", "stop", id="no stop before the shortest length"),
    ],
)
def test_what_of_an_answer_is_sent(
    engine: EngineProcess, prompt: Any, fields: dict[str, Any], text: str, reason: str, stream: bool
) -> None:
    body = completion(prompt=prompt, **{"max_tokens": 10, **fields}, stream=stream)
    answer = engine.http.post("/v1/completions", json=body)
    choices = (
        [choice for chunk in events(answer) for choice in chunk["choices"]] if stream else answer.json()["choices"]
    )
    assert "".join(choice["text"] for choice in choices) == text
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == [reason]
    engine.wait_idle()


def test_logprobs_in_the_shape_of_chat(engine: EngineProcess) -> None:
    body = engine.http.post("/v1/chat/completions", json=chat(logprobs=True, top_logprobs=2)).json()
    content = body["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["a", "b", "c"]
    assert content[0]["bytes"] == [97]
    assert [len(entry["top_logprobs"]) for entry in content] == [2, 2, 2]
    assert content[0]["logprob"] == -0.5


def test_logprobs_in_the_shape_of_completions(engine: EngineProcess) -> None:
    body = engine.http.post("/v1/completions", json=completion(prompt="aé", logprobs=2)).json()
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["text_offset"] == [0, 1, 1]
    assert logprobs["token_logprobs"] == [-0.5] * 3
    assert [len(top) for top in logprobs["top_logprobs"]] == [2, 2, 2]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_logprobs_do_not_betray_a_stop_string(engine: EngineProcess, stream: bool) -> None:
    body = completion(prompt="abENDcd", max_tokens=9, stop="END", logprobs=0, stream=stream)
    answer = engine.http.post("/v1/completions", json=body)
    choices = (
        [choice for chunk in events(answer) for choice in chunk["choices"]] if stream else answer.json()["choices"]
    )
    assert [token for choice in choices for token in choice["logprobs"]["tokens"]] == ["a", "b"]
