"""docs/api.md tells of every field of the openai package what the real server does with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from engine_process import NAME, ROOT, EngineProcess
from openai.types import Model, chat, completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_params
from tidegate_engine.server.protocol import NO_OPS, ChatRequest, CompletionRequest, EmbeddingRequest
from tiny_tokenizer import tiny_model


@dataclass(frozen=True)
class Endpoint:
    path: str
    request: type
    openai: tuple[type, ...]
    least: dict[str, Any]
    """The smallest request, whose answer a no-op must not change."""


ENDPOINTS = (
    Endpoint(
        "/v1/chat/completions",
        ChatRequest,
        (chat_params.CompletionCreateParamsNonStreaming, chat_params.CompletionCreateParamsStreaming),
        {"model": NAME, "messages": [{"role": "user", "content": "abc"}], "max_tokens": 3},
    ),
    Endpoint(
        "/v1/completions",
        CompletionRequest,
        (
            completion_create_params.CompletionCreateParamsNonStreaming,
            completion_create_params.CompletionCreateParamsStreaming,
        ),
        {"model": NAME, "prompt": "abc", "max_tokens": 3},
    ),
    Endpoint(
        "/v1/embeddings",
        EmbeddingRequest,
        (embedding_create_params.EmbeddingCreateParams,),
        {"model": NAME, "input": "abc"},
    ),
)
BEYOND = ", beyond OpenAI"


@dataclass(frozen=True)
class Row:
    field: str
    status: str
    accepted: dict[str, Any] | None
    refused: dict[str, Any] | None


def cells(heading: str) -> list[list[str]]:
    """The table under a heading."""
    text = (ROOT / "docs/api.md").read_text()
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section is not None, f"docs/api.md: no section {heading}"
    lines = [line for line in section[1].splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def rows(heading: str) -> list[Row]:
    def example(cell: str) -> dict[str, Any] | None:
        return json.loads("{" + cell.strip("`") + "}") if cell else None

    return [Row(one[0].strip("`"), one[1], example(one[2]), example(one[3])) for one in cells(heading)]


def openai_fields(endpoint: Endpoint) -> set[str]:
    return {name for kind in endpoint.openai for name in kind.__annotations__}


ALL = [
    pytest.param(endpoint, row, id=f"{endpoint.path} {row.field}")
    for endpoint in ENDPOINTS
    for row in rows(f"POST {endpoint.path}") + rows(f"POST {endpoint.path}{BEYOND}")
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with EngineProcess(tiny_model(tmp_path_factory.mktemp("tiny")), fake=[]) as engine:
        yield engine.wait_ready()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_every_field_has_one_row(endpoint: Endpoint) -> None:
    ours = set(endpoint.request.__struct_fields__) | set(NO_OPS[endpoint.request])  # type: ignore[attr-defined]
    told = [row.field for row in rows(f"POST {endpoint.path}")]
    beyond = [row.field for row in rows(f"POST {endpoint.path}{BEYOND}")]
    assert sorted(told) == sorted(openai_fields(endpoint))
    assert sorted(beyond) == sorted(ours - openai_fields(endpoint))


@pytest.mark.parametrize(("endpoint", "row"), ALL)
def test_the_server_does_what_the_row_says(engine: EngineProcess, endpoint: Endpoint, row: Row) -> None:
    assert row.status in ("supported", "no-op", "refused")
    assert (row.accepted is None) == (row.status == "refused")
    assert (row.field in endpoint.request.__struct_fields__) == (row.status == "supported")  # type: ignore[attr-defined]
    null = engine.http.post(endpoint.path, json=endpoint.least | {row.field: None})
    assert null.status_code == (400 if row.field in ("model", "messages", "prompt", "input") else 200)
    if row.accepted is not None:
        answer = engine.http.post(endpoint.path, json=endpoint.least | row.accepted)
        assert answer.status_code == 200, answer.text
        if row.status == "no-op":
            assert said(answer.json()) == said(engine.http.post(endpoint.path, json=endpoint.least).json())
    if row.refused is not None:
        refused = engine.http.post(endpoint.path, json=endpoint.least | row.refused)
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["param"].startswith(row.field)
    else:
        assert row.status == "no-op", "only what merely labels a request may have any value"


MESSAGES = (
    chat.ChatCompletionDeveloperMessageParam,
    chat.ChatCompletionSystemMessageParam,
    chat.ChatCompletionUserMessageParam,
    chat.ChatCompletionAssistantMessageParam,
    chat.ChatCompletionToolMessageParam,
    chat.ChatCompletionFunctionMessageParam,
)
MESSAGE_ROWS = rows("Fields of a message")


def test_every_field_of_a_message_has_one_row_and_every_kind_of_message_is_known() -> None:
    assert set(get_args(chat.ChatCompletionMessageParam)) == set(MESSAGES)
    assert sorted(row.field for row in MESSAGE_ROWS) == sorted(
        {name for kind in MESSAGES for name in kind.__annotations__}
    )


@pytest.mark.parametrize("row", MESSAGE_ROWS, ids=lambda row: row.field)
def test_the_server_does_with_a_message_what_the_row_says(engine: EngineProcess, row: Row) -> None:
    (endpoint,) = (one for one in ENDPOINTS if one.request is ChatRequest)
    assert (row.accepted is None) == (row.status == "refused")
    if row.accepted is not None:
        answer = engine.http.post(endpoint.path, json=endpoint.least | row.accepted)
        assert answer.status_code == 200, answer.text
        if row.status == "no-op":
            assert said(answer.json()) == said(engine.http.post(endpoint.path, json=endpoint.least).json())
    assert row.refused is not None
    refused = engine.http.post(endpoint.path, json=endpoint.least | row.refused)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"].startswith(f"messages[0].{row.field}")


def said(body: dict[str, Any]) -> Any:
    return body.get("choices") or body["data"]


def test_a_model_has_the_fields_of_the_table(engine: EngineProcess) -> None:
    told = {one[0].strip("`"): one[1].split(";")[0] for one in cells("GET /v1/models")}
    assert set(Model.model_fields) <= set(told)
    (card,) = engine.http.get("/v1/models").json()["data"]
    assert {name for name, how in told.items() if how == "returned"} == set(card)
