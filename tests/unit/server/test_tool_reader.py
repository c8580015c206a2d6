"""Calls in an answer's text, in each family's way: whole, in pieces however cut, and what only looks like one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_engine.server.tool_format import ToolFormat, tool_format
from tidegate_engine.server.tool_reader import Arguments, Call, Event, Text, ToolReader

HERMES = tool_format("<tool_call>")
MISTRAL = tool_format("[TOOL_CALLS]")
LLAMA3 = tool_format("ipython")
NAMES = ("add", "find_city")


def heard(events: list[Event]) -> tuple[str, list[tuple[str, str]]]:
    """The text, and each call's name and arguments."""
    text, calls = "", []
    for event in events:
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, Call):
            assert event.index == len(calls)
            calls.append((event.name, ""))
        else:
            assert isinstance(event, Arguments)
            name, known = calls[event.index]
            calls[event.index] = (name, known + event.text)
    return text, calls


def read(used: ToolFormat, *pieces: str) -> tuple[str, list[tuple[str, str]]]:
    reader = ToolReader(used, NAMES)
    events = [event for piece in pieces for event in reader.push(piece)] + reader.finish()
    found = heard(events)
    assert reader.calls == len(found[1])
    return found


ADD = '{"name": "add", "arguments": {"a": 1, "b": {"c": [2, "}"]}}}'
FIND = '{"name": "find_city", "arguments": {"q": "a \\"b\\" {"}}'
ADD_ARGUMENTS = '{"a": 1, "b": {"c": [2, "}"]}}'
FIND_ARGUMENTS = '{"q": "a \\"b\\" {"}'
BOTH = [("add", ADD_ARGUMENTS), ("find_city", FIND_ARGUMENTS)]
LLAMA_ADD = ADD.replace("arguments", "parameters")

CASES = [
    pytest.param(HERMES, "Just text.\n", "Just text.\n", [], id="no call"),
    pytest.param(HERMES, f"<tool_call>\n{ADD}\n</tool_call>", "", BOTH[:1], id="one call"),
    pytest.param(HERMES, f"I see.\n\n<tool_call>{ADD}</tool_call>\n", "I see.", BOTH[:1], id="text before it"),
    pytest.param(
        HERMES, f"<tool_call>\n{ADD}\n</tool_call>\n<tool_call>\n{FIND}\n</tool_call>", "", BOTH, id="two calls"
    ),
    pytest.param(HERMES, f"<tool_call>\n{ADD}\n</tool_call> Done", " Done", BOTH[:1], id="text after it"),
    pytest.param(HERMES, f"<tool_call>\n{ADD}", "", BOTH[:1], id="a call that is not closed"),
    pytest.param(
        HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": 1', "", [("add", '{"a": 1')], id="a call cut short"
    ),
    pytest.param(
        HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "add"}', "", [("add", '{"a": 1}')], id="arguments first"
    ),
    pytest.param(HERMES, '<tool_call>{"name": "add"}</tool_call>', "", [("add", "{}")], id="no arguments"),
    pytest.param(HERMES, "a <tool_call> b", "a <tool_call> b", [], id="a marker in prose"),
    pytest.param(HERMES, "a < b <tool", "a < b <tool", [], id="half a marker at the end"),
    pytest.param(
        HERMES,
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        [],
        id="a function that was not offered",
    ),
    pytest.param(
        HERMES, f'<tool_call>[oops<tool_call>\n{ADD}', "<tool_call>[oops", BOTH[:1], id="a second try"
    ),
    pytest.param(MISTRAL, f"[TOOL_CALLS][{ADD}, {FIND}]", "", BOTH, id="Mistral's list"),
    pytest.param(MISTRAL, f"[TOOL_CALLS] [{ADD}]", "", BOTH[:1], id="Mistral's list after a space"),
    pytest.param(MISTRAL, "I [would] not", "I [would] not", [], id="Mistral without calls"),
    pytest.param(LLAMA3, LLAMA_ADD, "", BOTH[:1], id="Llama's bare JSON"),
    pytest.param(LLAMA3, f"<|python_tag|>{LLAMA_ADD}; {LLAMA_ADD}", "", BOTH[:1] * 2, id="Llama's tag, and two"),
    pytest.param(LLAMA3, '{"answer": 42}', '{"answer": 42}', [], id="JSON that is no call"),
    pytest.param(LLAMA3, f"Sure: {LLAMA_ADD}", f"Sure: {LLAMA_ADD}", [], id="a call that does not begin the answer"),
    pytest.param(LLAMA3, "", "", [], id="nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("used", "said", "text", "calls"), CASES)
def test_calls_are_told_from_text(used: ToolFormat, said: str, text: str, calls: list[tuple[str, str]]) -> None:
    assert read(used, said) == (text, calls)
    assert read(used, *said) == (text, calls), "a character at a time"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([case.values for case in CASES]), st.data())
def test_it_does_not_matter_how_it_is_cut(
    case: tuple[ToolFormat, str, str, list[tuple[str, str]]], data: st.DataObject
) -> None:
    used, said, text, calls = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=5)))
    pieces = [said[start:end] for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True)]
    assert read(used, *pieces) == (text, calls)


def test_arguments_are_told_as_they_come() -> None:
    reader = ToolReader(HERMES, NAMES)
    events = reader.push('<tool_call>\n{"name": "add", "arguments": {"text": "once upon')
    assert heard(events) == ("", [("add", '{"text": "once upon')])
    assert reader.push(" a time") == [Arguments(0, " a time")]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_text_without_calls_is_lost_nowhere(text: str) -> None:
    for used in (HERMES, MISTRAL, LLAMA3):
        if used.marker not in text or not used.marker:
            assert read(used, *text)[0] == text
            assert read(used, json.dumps(text))[0] == json.dumps(text)


@pytest.mark.parametrize(("used", "length"), [(HERMES, 29), (MISTRAL, 9)])
def test_calls_have_ids_of_their_own(used: ToolFormat, length: int) -> None:
    ids = {used.new_id() for _ in range(50)}
    assert len(ids) == 50
    assert {len(id) for id in ids} == {length}
