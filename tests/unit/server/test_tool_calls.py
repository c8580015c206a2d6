"""Tools over HTTP: what is refused, how the conversation is told, and how calls come back. The runtime echoes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_process import NAME, EngineProcess
from tidegate_engine.server.chat_template import ChatTemplate
from tiny_tokenizer import TEMPLATE, tiny_model

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
SAID = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
_TELLS = (
    "{# <tool_call> #}{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    "{% for call in message.tool_calls or [] %}({{ call.function.name }} {{ call.function.arguments | tojson }})"
    "{% endfor %};{% endfor %}"
)


@pytest.fixture(scope="module")
def hermes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """A model whose template names Hermes' marker, and says only the contents."""
    folder: Path = tiny_model(tmp_path_factory.mktemp("hermes"))
    config = {"eos_token": "<end>", "chat_template": "{# <tool_call> #}" + TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with EngineProcess(folder, fake=[]) as engine:
        yield engine.wait_ready()


def ask(engine: EngineProcess, **fields: Any) -> httpx.Response:
    body = {"model": NAME, "messages": [{"role": "user", "content": SAID}], "max_tokens": len(SAID), "tools": [ADD]}
    return engine.http.post("/v1/chat/completions", json=body | fields)


def test_a_call_comes_back_as_one(hermes: EngineProcess) -> None:
    # The echo is cut by length, so the call is there and the reason is not its own.
    (choice,) = ask(hermes).json()["choices"]
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert choice["finish_reason"] == "length"
    stopped = ask(hermes, stop_token_ids=[ord(">")], max_tokens=200, min_tokens=len(SAID) - 1).json()["choices"][0]
    assert stopped["finish_reason"] == "tool_calls"


def test_a_stream_of_a_call_adds_up_to_it(hermes: EngineProcess) -> None:
    answer = ask(hermes, stream=True)
    chunks = [
        json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line.startswith("data: {")
    ]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [set(call) for call in calls[:2]] == [{"index", "id", "type", "function"}, {"index", "function"}]
    assert calls[0]["function"] == {"name": "add", "arguments": ""}
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": 1}'
    assert not "".join(delta.get("content") or "" for delta in deltas)


def test_with_none_there_are_no_tools_and_the_same_text_is_text(hermes: EngineProcess) -> None:
    (choice,) = ask(hermes, tool_choice="none").json()["choices"]
    assert choice["message"]["content"] == SAID
    assert "tool_calls" not in choice["message"]


def test_what_the_model_called_can_be_sent_back_with_the_answer(hermes: EngineProcess) -> None:
    message = ask(hermes).json()["choices"][0]["message"]
    turns = [
        {"role": "user", "content": "x"},
        message,
        {"role": "tool", "content": "3", "tool_call_id": message["tool_calls"][0]["id"]},
    ]
    assert ask(hermes, messages=turns, max_tokens=2).json()["choices"][0]["message"]["content"] == "x3"


BAD = [
    pytest.param({"tools": [{"type": "function"}]}, "tools[0].function", "missing", id="a tool without a function"),
    pytest.param({"tools": [{"type": "retrieval"}]}, "tools", "function", id="another kind of tool"),
    pytest.param({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "a b", id="an odd name"),
    pytest.param({"tools": [ADD, ADD]}, "tools", "'add'", id="two of one name"),
    pytest.param({"tools": [], "tool_choice": "required"}, "tool_choice", "no tools", id="none to choose from"),
    pytest.param({"tool_choice": "must"}, "tool_choice", "must", id="an unknown choice"),
    pytest.param(
        {"tool_choice": {"type": "function", "function": {"name": "sub"}}},
        "tool_choice.function.name",
        "'sub'",
        id="a name that is none of the tools",
    ),
    pytest.param(
        {
            "tool_choice": "required",
            "tools": [
                {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"not": {}}}}}}
            ],
        },
        "tools[0].function.parameters.properties.a.not",
        "not supported",
        id="a keyword that cannot be held",
    ),
    pytest.param({"tool_choice": "required", "ignore_eos": True}, "ignore_eos", "contradicts", id="no end"),
    pytest.param(
        {"tool_choice": "required", "structured_outputs": {"regex": "a"}},
        "structured_outputs",
        "contradicts",
        id="two forms",
    ),
    pytest.param(
        {"messages": [{"role": "tool"}]}, "messages[0].content", "missing", id="a tool's answer without content"
    ),
    pytest.param(
        {"messages": [{"role": "tool", "content": "x"}]},
        "messages[0].tool_call_id",
        "missing",
        id="an answer to no call",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "a", "tool_call_id": "c"}]},
        "messages[0].tool_call_id",
        "tool",
        id="a user's call id",
    ),
    pytest.param(
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}],
                }
            ]
        },
        "messages[0].tool_calls[0].function.arguments",
        "JSON",
        id="arguments that are no JSON",
    ),
]


@pytest.mark.parametrize(("fields", "param", "said"), BAD)
def test_it_is_refused_with_the_name_of_the_field(
    hermes: EngineProcess, fields: dict[str, Any], param: str, said: str
) -> None:
    answer = ask(hermes, **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"].startswith(param)
    assert said in error["message"]


def test_parameters_that_are_not_held_may_be_anything(hermes: EngineProcess) -> None:
    loose = {"type": "function", "function": {"name": "add", "parameters": {"not": {}, "uniqueItems": True}}}
    assert ask(hermes, tools=[loose]).status_code == 200


def test_a_template_is_told_of_tools_and_calls() -> None:
    template = ChatTemplate(_TELLS, {})
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    turns = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "2"}]
    assert template.render(turns, [ADD]) == '[add]assistant:(add {"a": 1});tool:2;'
    assert template.render([{"role": "user", "content": "x"}]) == "user:x;"


def test_a_template_without_tools_is_told_in_words(engine: EngineProcess) -> None:
    """The echo begins with the instructions, before the user's text."""
    answer = ask(engine, messages=[{"role": "user", "content": "hi"}], max_tokens=60)
    assert answer.json()["choices"][0]["message"]["content"].startswith("You may call functions")
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    answer = ask(engine, messages=system, max_tokens=40).json()["choices"][0]["message"]["content"]
    assert answer.startswith("Be brief.\n\nYou may call")
