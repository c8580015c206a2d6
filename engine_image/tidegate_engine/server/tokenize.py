"""`POST /tokenize` and `POST /detokenize`, in vLLM's shapes: what the model is given for a text, and back."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidegate_engine.server.conversation import rendered
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.http import read_body
from tidegate_engine.server.prompts import encoded
from tidegate_engine.server.protocol import TokenizeRequest, read_detokenize, read_tokenize
from tidegate_engine.server.service import ServedModel, Service


class Tokens(msgspec.Struct, frozen=True):
    """The body of `/tokenize`."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None
    """As the vocabulary writes them."""


class Text(msgspec.Struct, frozen=True):
    """The body of `/detokenize`."""

    prompt: str


class TokenizeEndpoints:
    """Neither needs the runtime; the loaded model is named all the same, since another's ids mean something else."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: Request) -> Response:
        """Text or messages to token ids."""
        model = self._service.require_model()
        call = read_tokenize(await self._body(request))
        model.named(call.model or model.name)
        ids = await self._ids(call, model)
        names = [model.tokenizer.names[token] for token in ids] if call.return_token_strs else None
        return _json(Tokens(len(ids), model.limits.max_model_len, ids, names))

    async def detokenize(self, request: Request) -> Response:
        """Token ids to the text that a user would see."""
        model = self._service.require_model()
        call = read_detokenize(await self._body(request))
        model.named(call.model or model.name)
        size = model.limits.vocab_size
        outside = next((token for token in call.tokens if not 0 <= token < size), None)
        if outside is not None:
            raise InvalidRequest(
                f"tokens: {outside} is not in the vocabulary; give ids from 0 to {size - 1}", param="tokens"
            )
        return _json(Text(model.tokenizer.text_of(call.tokens)))

    async def _body(self, request: Request) -> bytes:
        return await read_body(request.scope, request.receive, self._service.settings.max_body_size)

    async def _ids(self, call: TokenizeRequest, model: ServedModel) -> list[int]:
        if (call.prompt is None) == (call.messages is None):
            raise InvalidRequest("prompt: give either prompt or messages, and not both", param="prompt")
        if call.messages is not None:
            return await encoded(model.tokenizer, rendered(call.messages, model), bool(call.add_special_tokens))
        return await encoded(model.tokenizer, call.prompt or "", call.add_special_tokens is not False)


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
