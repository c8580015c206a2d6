"""`POST /v1/embeddings`: each input's last hidden state, at length 1."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from array import array
from typing import Literal

import msgspec
from starlette.types import Receive, Scope, Send

from tidegate_engine.core.request import FinishReason
from tidegate_engine.server.answers import Answer, Choice, Vector
from tidegate_engine.server.errors import ApiError, InvalidRequest
from tidegate_engine.server.generate import abort_on_disconnect, submit
from tidegate_engine.server.http import ClientGone, read_body, send_error, send_json
from tidegate_engine.server.prompts import token_ids
from tidegate_engine.server.protocol import EmbeddingRequest, read_embedding
from tidegate_engine.server.sampling import check_prompt
from tidegate_engine.server.service import ServedModel, Service


class Embedding(msgspec.Struct, frozen=True):
    """One input's vector: numbers, or little-endian float32 in base64."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(msgspec.Struct, frozen=True):
    """What it cost, in tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, frozen=True):
    """The body of the answer, in the order of the inputs."""

    model: str
    data: list[Embedding]
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


class EmbeddingEndpoint:
    """An ASGI application. Inputs are computed like prompts, side by side with answers, and share their cache."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            model = self._service.require_model()
            call = read_embedding(await read_body(scope, receive, self._service.settings.max_body_size))
            model = model.named(call.model)
            answer = await _admit(call, model)
        except ClientGone:
            return
        except ApiError as error:
            await send_error(send, error)
            return
        watcher = asyncio.create_task(abort_on_disconnect(receive, model, answer))
        try:
            async for _ in answer.deltas():
                continue
            if not answer.aborted:
                body = msgspec.json.encode(_whole(call, model, answer))
                await send_json(send, body, headers=answer.headers)
        except ApiError as error:
            await send_error(send, error, answer.headers)
        finally:
            model.engine.abort(answer)
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher


async def _admit(call: EmbeddingRequest, model: ServedModel) -> Answer:
    prompts = await token_ids("input", call.input, model.tokenizer)
    if len(prompts) > model.engine.places:
        raise InvalidRequest(
            f"input: {len(prompts)} inputs are more than {model.engine.places}; send fewer at a time", param="input"
        )
    choices: list[Choice] = []
    for param, prompt in prompts:
        check_prompt(prompt, model.limits, param)
        choices.append(Vector(len(choices), prompt, model.adapter))
    return submit("embd", call, model, choices)


def _whole(call: EmbeddingRequest, model: ServedModel, answer: Answer) -> EmbeddingList:
    found: list[Embedding] = []
    for choice in answer.choices:
        if not isinstance(choice, Vector) or choice.finish_reason is FinishReason.ABORT:
            raise ApiError("the runtime refused an input; the log says why")
        found.append(Embedding(choice.index, _written(choice.embedding, call.encoding_format)))
    tokens = answer.prompt_tokens
    return EmbeddingList(model.name, found, EmbeddingUsage(tokens, tokens))


def _written(raw: bytes, form: Literal["float", "base64"]) -> list[float] | str:
    return base64.b64encode(raw).decode() if form == "base64" else array("f", raw).tolist()
