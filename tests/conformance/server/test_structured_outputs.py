"""Structured outputs and calls of the real model by the official client. STRUCTURED_SCHEMAS=500 asks for more."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pydantic
import pytest
from engine_process import NAME, EngineProcess
from model_file import smollm2
from random_schemas import random_schemas

pytestmark = pytest.mark.model
GREETING = 'start: greeting " " name\ngreeting: "hello" | "hi"\nname: /[a-z]{2,5}/'
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city on some days",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "time", "description": "What time it is"}}


Sight = Annotated[str, pydantic.Field(max_length=30)]
"""Bounded, like all of a Capital: 300 tokens hold the longest, so that any text of any machine ends."""


class Capital(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=30)
    country: Literal["France", "Spain", "Italy"]
    inhabitants: int = pydantic.Field(ge=0, le=100_000_000)
    sights: list[Sight] = pydantic.Field(max_length=2)


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(smollm2(), "--max-running-requests", "8") as engine:
        yield engine.wait_ready()


@pytest.fixture(scope="module")
def client(engine: EngineProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{engine.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=NAME, messages=messages, **fields)  # type: ignore[call-overload]


def test_the_clients_own_parsing_gets_the_type_it_asked_for(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=NAME,
        messages=[{"role": "user", "content": "Tell me about Paris as JSON."}],
        response_format=Capital,
        temperature=0,
        max_tokens=300,
    )
    found = answer.choices[0].message.parsed
    assert isinstance(found, Capital)
    assert answer.choices[0].finish_reason == "stop"


def test_a_stream_adds_up_to_the_same_json(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "capital", "schema": Capital.model_json_schema()}}
    whole = ask(client, "Paris, as JSON", response_format=form, temperature=0, max_tokens=300)
    chunks = ask(client, "Paris, as JSON", response_format=form, temperature=0, max_tokens=300, stream=True)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    Capital.model_validate_json(text)


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        pytest.param({"regex": "[A-Z][a-z]{2,8}, [0-9]{4}"}, "[A-Z][a-z]{2,8}, [0-9]{4}", id="a regex"),
        pytest.param({"choice": ["yes", "no", "perhaps"]}, "yes|no|perhaps", id="a choice"),
        pytest.param({"grammar": GREETING}, "(hello|hi) [a-z]{2,5}", id="a grammar"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_other_forms(client: openai.OpenAI, form: dict[str, Any], pattern: str, temperature: float) -> None:
    answer = ask(
        client,
        "Is it?",
        temperature=temperature,
        seed=4,
        n=2,
        max_tokens=60,
        logprobs=True,
        top_logprobs=4,
        extra_body={"structured_outputs": form},
    )
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert re.fullmatch(pattern, choice.message.content)
        for entry in choice.logprobs.content:
            assert 1 <= len(entry.top_logprobs) <= 4
            assert all(top.logprob > -1e9 for top in entry.top_logprobs)


def test_who_shares_the_batch_and_who_leaves_change_nothing(engine: EngineProcess, client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "capital", "schema": Capital.model_json_schema()}}

    def one(_: int) -> str:
        answer = ask(client, "Rome, as JSON", response_format=form, seed=9, max_tokens=200)
        return str(answer.choices[0].message.content)

    alone = one(0)
    with ThreadPoolExecutor(7) as pool:
        free = [pool.submit(ask, client, "Tell a story", max_tokens=60) for _ in range(2)]
        leaves = ask(
            client, "Count", stream=True, max_tokens=200, extra_body={"structured_outputs": {"regex": "[0-9 ]+"}}
        )
        next(iter(leaves))
        together = [pool.submit(one, number) for number in range(4)]
        leaves.close()
        assert {answer.result() for answer in together} == {alone}
        assert all(answer.result().choices[0].message.content for answer in free)
    engine.wait_idle()


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param("required", id="any is required"),
        pytest.param({"type": "function", "function": {"name": "weather"}}, id="a named one"),
    ],
)
def test_a_tool_that_must_be_called_is_called_and_its_answer_understood(client: openai.OpenAI, choice: Any) -> None:
    text = "What is the weather in Paris tomorrow?"
    # One call: any number of them need not come to an end within so many tokens.
    one = {"parallel_tool_calls": False, "max_tokens": 200}
    answer = ask(client, text, tools=[WEATHER, TIME], tool_choice=choice, temperature=0, **one)
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    for call in message.tool_calls:
        assert call.function.name in ("weather", "time")
        if call.function.name == "weather":
            jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])  # type: ignore[index]
    turns = [
        {"role": "user", "content": text},
        message.to_dict(),
        *({"role": "tool", "tool_call_id": call.id, "content": "Sunny, 24 degrees"} for call in message.tool_calls),
    ]
    end = client.chat.completions.create(
        model=NAME,
        messages=turns,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=30,
        extra_body={"min_tokens": 5},
    )
    assert end.choices[0].message.content


def test_streamed_calls_add_up_to_the_whole_ones(client: openai.OpenAI) -> None:
    fields = {"tools": [WEATHER], "tool_choice": "required", "seed": 3, "max_tokens": 200, "parallel_tool_calls": False}
    whole = ask(client, "Paris?", **fields).choices[0].message.tool_calls
    pieces = [
        call
        for chunk in ask(client, "Paris?", stream=True, **fields)
        for choice in chunk.choices
        for call in choice.delta.tool_calls or ()
    ]
    assert [piece.function.name for piece in pieces if piece.function.name] == ["weather"]
    assert [bool(piece.id) for piece in pieces].count(True) == 1
    assert "".join(piece.function.arguments or "" for piece in pieces) == whole[0].function.arguments


def test_the_clients_own_parsing_of_strict_tools(client: openai.OpenAI) -> None:
    class Weather(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=20)
        days: int = pydantic.Field(ge=1, le=7)

    answer = client.chat.completions.parse(
        model=NAME,
        messages=[{"role": "user", "content": "Will it rain in Rome?"}],
        tools=[openai.pydantic_function_tool(Weather)],
        tool_choice="required",
        parallel_tool_calls=False,
        seed=1,
        max_tokens=200,
    )
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert all(isinstance(call.function.parsed_arguments, Weather) for call in calls)


def test_with_auto_an_answer_is_text_or_a_call_or_both(client: openai.OpenAI) -> None:
    answer = ask(client, "Say hello", tools=[TIME], temperature=0, max_tokens=20).choices[0]
    assert answer.message.content or answer.message.tool_calls


def test_random_schemas_are_refused_by_name_or_held_and_most_end(client: openai.OpenAI) -> None:
    def one(case: tuple[int, tuple[dict[str, Any], str | None]]) -> str:
        number, (schema, unsupported) = case
        form = {"type": "json_schema", "json_schema": {"name": "random", "schema": schema, "strict": True}}
        text = f"Write some JSON that fits this schema: {json.dumps(schema)[:600]}"
        try:
            answer = ask(client, text, response_format=form, seed=number, max_tokens=600)
        except openai.BadRequestError as error:
            assert unsupported is not None, error
            assert f".{unsupported}:" in error.message
            return "refused"
        assert unsupported is None
        choice = answer.choices[0]
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content), schema, cls=jsonschema.Draft202012Validator)
        return str(choice.finish_reason)

    count = int(os.environ.get("STRUCTURED_SCHEMAS", "24"))
    with ThreadPoolExecutor(8) as pool:
        ends = Counter(pool.map(one, enumerate(random_schemas(count, seed=6, unsupported=0.1))))
    print(dict(ends))
    assert set(ends) <= {"refused", "stop", "length"}
    # Of 89 such, 79 ended; a model of 135M does not come to the end of every list and string that it begins. Of 21
    # texts of another processor, 12 or fewer would end less than once in 10,000.
    assert ends["stop"] >= 0.6 * (ends["stop"] + ends["length"])
