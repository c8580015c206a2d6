"""Where a call is required, whatever the model likes to say is one, of a function it may call, with its arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tokenizers
from byte_vocabulary import SIZE
from random_answers import params, random_logits, say
from tidegate_engine.core.request import FinishReason
from tidegate_engine.runtime.matching import MatcherFactory
from tidegate_engine.server.structured import embedded
from tidegate_engine.server.tokenizer import Tokenizer, load_tokenizer
from tidegate_engine.server.tool_format import ToolFormat, calls_form, free_form, tool_format, visible_bytes
from tidegate_engine.server.tool_reader import Arguments, Call, Text, ToolReader
from tidegate_engine.server.tools import Function
from tiny_tokenizer import tiny_model

CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/name"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string", "maxLength": 12}},
}
FUNCTIONS = [Function("weather", parameters=CITY), Function("time"), Function("any", parameters={"required": ["x"]})]
PARAMS = {function.name: function.name for function in FUNCTIONS}
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": CITY,
    "time": {"type": "object", "maxProperties": 0},
    "any": {"type": "object", "required": ["x"]},
}
FORMATS = ["<tool_call>", "[TOOL_CALLS]", "ipython"]


def tokenizer_with(folder: Path, *special: str) -> Tokenizer:
    path = tiny_model(folder) / "tokenizer.json"
    changed = tokenizers.Tokenizer.from_file(str(path))
    changed.add_special_tokens([tokenizers.AddedToken(mark, normalized=False) for mark in special])
    changed.save(str(path))
    return load_tokenizer(folder)


@pytest.fixture(scope="module", params=[(), ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>")], ids=["text", "special"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The markers as text, or as tokens of their own that text does not show."""
    return tokenizer_with(tmp_path_factory.mktemp("tokens"), *request.param)


def called(used: ToolFormat, text: str) -> tuple[str, list[tuple[str, Any]]]:
    reader = ToolReader(used, [function.name for function in FUNCTIONS])
    events = [*reader.push(text), *reader.finish()]
    said = "".join(event.text for event in events if isinstance(event, Text))
    names = [event.name for event in events if isinstance(event, Call)]
    arguments = [""] * len(names)
    for event in events:
        if isinstance(event, Arguments):
            arguments[event.index] += event.text
    return said, [(name, json.loads(given)) for name, given in zip(names, arguments, strict=True)]


def answer(tokenizer: Tokenizer, used: ToolFormat, grammar: str, seed: int) -> str | None:
    """What was said, if it ended by itself."""
    factory = MatcherFactory(tokenizer.vocabulary(), SIZE)
    wanted = params(seed, stop_token_ids=tokenizer.eos_ids)
    marks = range(257, len(tokenizer.token_bytes))
    shown: Sequence[bytes] = [*visible_bytes(used, tokenizer), *[b""] * SIZE]
    text, reason = say(grammar, random_logits(seed, marks), wanted, factory, shown)
    return text if reason is FinishReason.STOP else None


@pytest.mark.parametrize("parallel", [True, False], ids=["many", "one"])
@pytest.mark.parametrize("functions", [FUNCTIONS, FUNCTIONS[:1]], ids=["any of three", "a named one"])
@pytest.mark.parametrize("family", FORMATS)
def test_a_call_that_is_required_comes(
    tokenizer: Tokenizer, family: str, functions: list[Function], parallel: bool
) -> None:
    used = tool_format(family)
    ended = 0
    for seed in range(6):
        text = answer(tokenizer, used, calls_form(used, functions, tokenizer, parallel, PARAMS).grammar, seed)
        if text is None:
            continue
        ended += 1
        said, calls = called(used, text)
        assert not said.strip()
        assert len(calls) >= 1
        assert len(calls) == 1 or (parallel and used.between is not None)
        for name, arguments in calls:
            assert name in {function.name for function in functions}
            jsonschema.validate(arguments, SCHEMAS[name])
    assert ended >= 4


@pytest.mark.parametrize("family", FORMATS)
def test_a_model_that_is_free_to_call_says_text_or_a_sound_call(tokenizer: Tokenizer, family: str) -> None:
    used = tool_format(family)
    form = free_form(used, FUNCTIONS, tokenizer, True, PARAMS, None)
    kinds = set()
    for seed in range(12):
        text = answer(tokenizer, used, form.grammar, seed)
        if text is None:
            continue
        said, calls = called(used, text)
        kinds.add(bool(calls))
        if not calls:
            assert said.strip() == text.strip()
        for name, arguments in calls:
            jsonschema.validate(arguments, SCHEMAS[name])
    assert False in kinds, "text alone is allowed"


@pytest.mark.parametrize("family", FORMATS)
def test_an_answer_with_a_form_of_its_own_or_a_call(tokenizer: Tokenizer, family: str) -> None:
    used = tool_format(family)
    schema = {"type": "object", "properties": {"answer": {"type": "boolean"}}, "required": ["answer"]}
    term = embedded(schema | {"additionalProperties": False}, "response_format")
    form = free_form(used, FUNCTIONS[:1], tokenizer, False, PARAMS, term)
    for seed in range(6):
        text = answer(tokenizer, used, form.grammar, seed)
        if text is not None:
            said, calls = called(used, text)
            if not calls:
                assert set(json.loads(said)) == {"answer"}
            for name, arguments in calls:
                jsonschema.validate(arguments, SCHEMAS[name])
