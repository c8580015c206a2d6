"""Whatever a model likes to say: an answer that ended by itself is what was asked for. Its logits are drawn at random.

The same is asked of the real model, over HTTP, by tests/conformance/server/test_structured_outputs.py.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any

import jsonschema
import pytest
from byte_vocabulary import END
from hypothesis import given, settings
from hypothesis import strategies as st
from random_answers import params, random_logits, say
from random_schemas import random_schemas
from tidegate_engine.core.request import FinishReason
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.grammars import Grammars
from tidegate_engine.server.structured import ResponseFormat, StructuredOutputs, form_of, json_form


def test_five_hundred_schemas_are_refused_by_name_or_held() -> None:
    """Each is refused with the keyword that is not supported, or held by every answer that ended; 90 % end."""
    ends: Counter[str] = Counter()
    grammars = Grammars()
    for number, (schema, unsupported) in enumerate(random_schemas(500)):
        try:
            form = json_form(schema, "response_format.json_schema.schema")
            asyncio.run(grammars.check(form))
        except InvalidRequest as error:
            assert unsupported is not None, f"{schema} is refused: {error}"
            assert f".{unsupported}:" in error.message
            ends["refused"] += 1
            continue
        assert unsupported is None, f"{unsupported} in {schema} is not refused"
        text, reason = say(form.grammar, random_logits(number), params(number))
        ends[reason] += 1
        if reason is FinishReason.STOP:
            jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)
    print(dict(ends))
    assert ends["refused"] >= 20
    assert ends["stop"] >= 0.9 * (ends["stop"] + ends["length"])


# No \\d: llguidance knows the digits of a newer Unicode than Python 3.11's `re` does, U+1E5F5 among them.
ATOMS = st.sampled_from(["a", "[bc]", ".", "é", "[0-9]", "[^a]", "(ab|cd)", "x|yz", "\\n", "\\.", "日"])
REPEATS = st.sampled_from(["", "", "?", "*", "+", "{2}", "{1,3}"])
PATTERNS = st.lists(st.tuples(ATOMS, REPEATS), min_size=1, max_size=5).map(
    lambda parts: "".join(f"(?:{atom}){repeat}" for atom, repeat in parts)
)


@settings(max_examples=150, deadline=None)
@given(PATTERNS, st.integers(0, 1000))
def test_an_answer_that_ended_matches_its_regex(pattern: str, seed: int) -> None:
    form = form_of(None, StructuredOutputs(regex=pattern))
    assert form is not None
    text, reason = say(form.grammar, random_logits(seed), params(seed))
    if reason is FinishReason.STOP:
        assert re.fullmatch(pattern, text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), min_size=1, max_size=6),
    st.integers(0, 1000),
)
def test_an_answer_is_one_of_the_choices(choices: list[str], seed: int) -> None:
    form = form_of(None, StructuredOutputs(choice=choices))
    assert form is not None
    assert say(form.grammar, random_logits(seed), params(seed)) in {(one, FinishReason.STOP) for one in choices}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"min_tokens": 30}, id="with a shortest length"),
        pytest.param({"logit_bias": {ord("}"): -100.0, END: 100.0}}, id="with tokens liked and disliked"),
        pytest.param({"top_k": 1, "repetition_penalty": 1.5}, id="with a penalty and one candidate"),
        pytest.param({"temperature": 0.0, "frequency_penalty": 2.0}, id="greedily"),
    ],
)
def test_what_else_is_wished_for_does_not_loosen_the_form(more: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}
    for seed in range(5):
        wanted = params(seed, **more)
        text, reason = say(
            json_form({**schema, "additionalProperties": False}, "x").grammar, random_logits(seed), wanted
        )
        assert reason is FinishReason.STOP
        assert re.fullmatch(r'\{"a": [0-9]\}', text)


def test_a_json_object_is_an_object() -> None:
    form = form_of(ResponseFormat("json_object"), None)
    assert form is not None
    text, reason = say(form.grammar, random_logits(3), params(3))
    assert reason is FinishReason.STOP
    assert isinstance(json.loads(text), dict)
