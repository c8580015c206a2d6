"""The public application: `/v1/*`, `/tokenize`, `/detokenize`, and the document that describes them."""

from __future__ import annotations

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tidegate_engine.server.chat import ChatEndpoint
from tidegate_engine.server.completion import CompletionEndpoint
from tidegate_engine.server.embedding import EmbeddingEndpoint
from tidegate_engine.server.errors import ApiError, InvalidRequest
from tidegate_engine.server.http import ClientGone, CloseWhileDraining
from tidegate_engine.server.openapi import document
from tidegate_engine.server.responses import Model, ModelList
from tidegate_engine.server.service import ServedModel, Service
from tidegate_engine.server.tokenize import TokenizeEndpoints


class _NoSuchPath(InvalidRequest):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def public_app(service: Service) -> ASGIApp:
    """OpenAI's endpoints, and vLLM's for tokens, over one service."""
    handlers = {ApiError: _explain, ClientGone: _nobody, HTTPException: _no_such_path, Exception: _broken}
    application = Starlette(routes=routes(service), exception_handlers=handlers)
    application.router.redirect_slashes = False
    return CloseWhileDraining(application, service)


def routes(service: Service) -> list[Route]:
    """What the public port answers; `openapi.OPERATIONS` describes the same."""
    tokenizing = TokenizeEndpoints(service)

    def card(model: ServedModel) -> Model:
        return Model(model.name, model.created, model.limits.max_model_len)

    async def models(_: Request) -> Response:
        model = service.require_model()
        return _json(ModelList([card(model.named(name)) for name in model.names]))

    async def one_model(request: Request) -> Response:
        return _json(card(service.require_model().named(request.path_params["name"])))

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type="application/json")

    return [
        Route("/v1/chat/completions", ChatEndpoint(service), methods=["POST"]),
        Route("/v1/completions", CompletionEndpoint(service), methods=["POST"]),
        Route("/v1/embeddings", EmbeddingEndpoint(service), methods=["POST"]),
        Route("/tokenize", tokenizing.tokenize, methods=["POST"]),
        Route("/detokenize", tokenizing.detokenize, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", one_model, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


async def _explain(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return Response(error.body(), error.status, error.headers, "application/json")


async def _nobody(_: Request, error: Exception) -> Response:
    """Its client left before the request was whole, so that this is read by nobody."""
    return Response(status_code=400)


async def _no_such_path(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = f"{request.method} {request.url.path}: {error.detail}; see GET /v1/models, POST /v1/chat/completions"
    refused = _NoSuchPath(error.status_code, message)
    return Response(refused.body(), refused.status, dict(error.headers or {}), "application/json")


async def _broken(_: Request, error: Exception) -> Response:
    """Starlette raises the error again after this, so that it is logged."""
    return Response(
        ApiError("the engine failed on this request; its log says where").body(), 500, None, "application/json"
    )
