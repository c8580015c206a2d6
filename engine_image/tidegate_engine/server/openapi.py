"""`GET /openapi.json`: the public port in OpenAPI 3.1, made from the types that read and write its bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate_engine.server.embedding import EmbeddingList
from tidegate_engine.server.errors import ErrorBody
from tidegate_engine.server.protocol import (
    NO_OPS,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)
from tidegate_engine.server.responses import ChatChunk, ChatCompletion, Completion, Model, ModelList
from tidegate_engine.server.tokenize import Text, Tokens

_REFUSALS = {
    400: "A field cannot be acted on; `param` names it",
    404: "Another model is served here",
    413: "The body is too large",
    500: "A fault of the engine; its log says where",
    503: "The model is loading, or the engine is ending",
}
_WORK_REFUSALS = _REFUSALS | {
    429: "As many requests run and wait as may; `Retry-After` says when to come back",
    504: "The request's own `deadline_s` was over",
}
_GET_REFUSALS = {status: _REFUSALS[status] for status in (404, 500, 503)}
_SCHEMA = "#/components/schemas/{name}"
_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A path, what it is sent and what it says."""

    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct]
    refusals: dict[int, str]
    request: type[msgspec.Struct] | None = None
    event: type[msgspec.Struct] | None = None
    """What a stream is made of, where `stream` asks for one."""


OPERATIONS = (
    Operation(
        "post", "/v1/chat/completions", "The assistant's next message", ChatCompletion, _WORK_REFUSALS, ChatRequest,
        ChatChunk,
    ),
    Operation(
        "post", "/v1/completions", "Continuations of prompts", Completion, _WORK_REFUSALS, CompletionRequest, Completion
    ),
    Operation("post", "/v1/embeddings", "Vectors of inputs", EmbeddingList, _WORK_REFUSALS, EmbeddingRequest),
    Operation("post", "/tokenize", "A text's or a chat's token ids", Tokens, _REFUSALS, TokenizeRequest),
    Operation("post", "/detokenize", "The text of token ids", Text, _REFUSALS, DetokenizeRequest),
    Operation("get", "/v1/models", "The model that is served", ModelList, _GET_REFUSALS),
    Operation("get", "/v1/models/{name}", "The model by its name", Model, _GET_REFUSALS),
)  # fmt: skip


def document() -> bytes:
    """The document as JSON."""
    types = {kind for operation in OPERATIONS for kind in _types(operation)} | {ErrorBody}
    _, components = msgspec.json.schema_components(sorted(types, key=lambda kind: kind.__name__), ref_template=_SCHEMA)
    for kind in NO_OPS:
        _as_it_is_read(components[kind.__name__], kind)
    paths: dict[str, _Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "Tidegate engine", "version": "1"},
        "paths": paths,
        "components": {"schemas": components},
    }
    return msgspec.json.encode(whole)


def _types(operation: Operation) -> list[type[msgspec.Struct]]:
    return [kind for kind in (operation.request, operation.answer, operation.event) if kind is not None]


def _as_it_is_read(schema: _Json, kind: type[msgspec.Struct]) -> None:
    """Null is read as absent, and known fields without support are accepted where they change nothing."""
    properties: dict[str, _Json] = schema["properties"]
    required = schema.get("required", [])
    for name, given in properties.items():
        if name not in required and given.get("default", 0) is not None:
            properties[name] = {"anyOf": [given, {"type": "null"}]}
    for name, no_op in NO_OPS[kind].items():
        properties[name] = {} if no_op.values is None else {"enum": [*no_op.values, None]}


def _described(operation: Operation) -> _Json:
    content: _Json = {"application/json": {"schema": _reference(operation.answer)}}
    if operation.event is not None:
        events = f"Where stream is true: server-sent events, each a {operation.event.__name__}, the last [DONE]"
        # As readers of event streams hand them on: an object for each event.
        event = {"type": "object", "properties": {"data": {"type": "string"}}, "description": events}
        content["text/event-stream"] = {"schema": event}
    responses: _Json = {"200": {"description": operation.summary, "content": content}}
    for status, meaning in sorted(operation.refusals.items()):
        responses[str(status)] = {
            "description": meaning,
            "content": {"application/json": {"schema": _reference(ErrorBody)}},
        }
    found: _Json = {"summary": operation.summary, "responses": responses}
    if operation.request is not None:
        body = {"application/json": {"schema": _reference(operation.request)}}
        found["requestBody"] = {"required": True, "content": body}
    if "{name}" in operation.path:
        found["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    return found


def _reference(kind: type[msgspec.Struct]) -> _Json:
    return {"$ref": _SCHEMA.format(name=kind.__name__)}
