"""The document at /openapi.json is true: schemathesis asks what it allows and what it forbids, and reads answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from engine_process import NAME, EngineProcess
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route
from tidegate_engine.server.app import routes
from tidegate_engine.server.openapi import OPERATIONS, document
from tidegate_engine.server.protocol import NO_OPS
from tidegate_engine.server.service import Service
from tidegate_engine.settings import Settings
from tiny_tokenizer import tiny_model

SCHEMA = schemathesis.openapi.from_dict(json.loads(document()))
EXAMPLES = 60
"""Of each operation and kind, the same at every run."""
CONFORMANCE = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """Of a bounded context, so that generated numbers of tokens stay small."""
    folder = tiny_model(tmp_path_factory.mktemp("tiny"))
    with EngineProcess(folder, "--max-running-requests", "64", fake=["--max-model-len", "64"]) as engine:
        yield engine.wait_ready()


def test_every_path_is_described_and_the_document_is_served(engine: EngineProcess) -> None:
    served = engine.http.get("/openapi.json")
    assert served.content == document()
    service = Service(Settings(Path("model"), NAME))
    paths = {
        (route.path.replace(":path", ""), next(iter(route.methods - {"HEAD"})).lower())
        for route in routes(service)
        if isinstance(route, Route) and route.methods and route.path != "/openapi.json"
    }
    assert paths == {(operation.path, operation.method) for operation in OPERATIONS}
    assert {operation.request for operation in OPERATIONS if operation.request} == set(NO_OPS)


CONTRADICTIONS = ("stream_options", "top_logprobs", "min_tokens", "max_completion_tokens", "deadline_s", "messages")
"""Fields that are right alone and wrong beside others: a schema cannot say so, and the server does."""


def likely_to_be_answered(case: schemathesis.Case) -> None:
    """Of what is allowed, most would fail on the model's name alone: half of it is made to make sense."""
    if not isinstance(case.body, dict) or len(case.body.get("model") or "") % 2:
        return
    case.body["model"] = NAME
    kept = {name: value for name, value in case.body.items() if name not in CONTRADICTIONS}
    if case.body.get("messages"):
        kept["messages"] = [{"role": "user", "content": "a"}]
    case.body = kept


ASKED = [
    pytest.param(operation, mode, id=f"{operation.path} {mode.value}")
    for operation in OPERATIONS
    for mode in schemathesis.GenerationMode
    if operation.request is not None or mode is schemathesis.GenerationMode.POSITIVE  # any text may be a name
]


@pytest.mark.parametrize(("operation", "mode"), ASKED)
def test_no_request_is_answered_but_as_described(engine: EngineProcess, operation: Any, mode: Any) -> None:
    described = SCHEMA[operation.path][operation.method.upper()]
    allowed = mode is schemathesis.GenerationMode.POSITIVE
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        if allowed:
            likely_to_be_answered(case)
        response = case.call(base_url=str(engine.http.base_url))
        statuses.add(response.status_code)
        # 504 is the answer to a deadline of a nanosecond, and no fault.
        checks = CONFORMANCE if response.status_code == 504 else [not_a_server_error, *CONFORMANCE]
        if not allowed:
            checks = [*checks, negative_data_rejection]
        case.validate_response(response, checks=checks)

    ask()
    if operation.request is not None:
        assert (200 in statuses) == allowed, statuses
    engine.wait_idle()
    assert engine.process.poll() is None


def answers(http: httpx.Client) -> list[tuple[str, Any]]:
    """Bodies of every kind of answer, with the name of their schema."""
    chat = {"model": NAME, "messages": [{"role": "user", "content": "aé"}], "max_tokens": 4, "n": 2}
    text = {"model": NAME, "prompt": "aé", "max_tokens": 4}
    return [
        ("ChatCompletion", http.post("/v1/chat/completions", json=chat).json()),
        ("ChatCompletion", http.post("/v1/chat/completions", json=chat | {"logprobs": True, "top_logprobs": 2}).json()),
        ("Completion", http.post("/v1/completions", json=text).json()),
        ("Completion", http.post("/v1/completions", json=text | {"logprobs": 2, "echo": True}).json()),
        ("EmbeddingList", http.post("/v1/embeddings", json={"model": NAME, "input": ["a", "b"]}).json()),
        (
            "EmbeddingList",
            http.post("/v1/embeddings", json={"model": NAME, "input": "a", "encoding_format": "base64"}).json(),
        ),
        ("Tokens", http.post("/tokenize", json={"prompt": "a", "return_token_strs": True}).json()),
        ("Text", http.post("/detokenize", json={"tokens": [97]}).json()),
        ("ModelList", http.get("/v1/models").json()),
        ("Model", http.get(f"/v1/models/{NAME}").json()),
        ("ErrorBody", http.get("/v1/models/other").json()),
    ]


def test_answers_of_every_kind_have_the_described_shape_and_no_field_more(engine: EngineProcess) -> None:
    components = {"components": {"schemas": SCHEMA.raw_schema["components"]["schemas"]}}
    for name, body in answers(engine.http):
        jsonschema.validate(body, {"$ref": f"#/components/schemas/{name}", **components})
        assert set(body) <= set(components["components"]["schemas"][name]["properties"])
