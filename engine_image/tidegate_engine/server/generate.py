"""What both ways of asking for text have in common: admit, stream or collect, and let go when the client does."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from tidegate_engine.server.answers import Answer, Choice, Delta
from tidegate_engine.server.errors import ApiError, InvalidRequest
from tidegate_engine.server.http import ClientGone, event, read_body, send_error, send_events, send_json, start_events
from tidegate_engine.server.protocol import ChatRequest, CompletionRequest, WorkFields
from tidegate_engine.server.responses import Usage
from tidegate_engine.server.sampling import check_combinations, check_prompt, sampling_params, seed_of
from tidegate_engine.server.service import ServedModel, Service
from tidegate_engine.server.structured import Form
from tidegate_engine.server.tool_reader import ToolReader

Call = TypeVar("Call", ChatRequest, CompletionRequest)
_DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


class Collected:
    """A choice's deltas put together."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.texts: list[str] = []
        self.deltas: list[Delta] = []

    def add(self, delta: Delta) -> None:
        """Take the next piece."""
        self.texts.append(delta.text)
        self.deltas.append(delta)

    def whole(self) -> Delta:
        """The choice's whole answer as one piece."""
        records = [record for delta in self.deltas for record in delta.records]
        return Delta(self.choice, "".join(self.texts), records, self.deltas[-1].finish_reason)


class GenerateEndpoint(abc.ABC, Generic[Call]):
    """An ASGI application for one path; subclasses know that path's shapes."""

    id_prefix: str

    def __init__(self, service: Service) -> None:
        self._service = service

    @abc.abstractmethod
    def read(self, body: bytes) -> Call:
        """The request; raises InvalidRequest."""

    @abc.abstractmethod
    async def prompts(self, call: Call, model: ServedModel) -> list[tuple[str, list[int]]]:
        """Each prompt's token ids, with the field that an error about it should name."""

    def form(self, call: Call, model: ServedModel) -> Form | None:
        """What the answer must look like; raises InvalidRequest."""
        return call.form()

    def reader(self, call: Call, model: ServedModel) -> ToolReader | None:
        """What finds calls in one choice's text, where there are tools to call."""
        return None

    @abc.abstractmethod
    def whole(self, call: Call, model: ServedModel, answer: Answer, choices: Sequence[Delta]) -> msgspec.Struct:
        """The body of an answer that is not streamed."""

    @abc.abstractmethod
    def chunks(self, call: Call, model: ServedModel, answer: Answer, delta: Delta, first: bool) -> list[msgspec.Struct]:
        """The events for what one choice has gained; `first` where it is its first."""

    @abc.abstractmethod
    def usage_chunk(self, model: ServedModel, answer: Answer, usage: Usage) -> msgspec.Struct:
        """The event that `include_usage` asks for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            model = self._service.require_model()
            body = await read_body(scope, receive, self._service.settings.max_body_size)
            call = self.read(body)
            model = model.named(call.model)
            answer = await self._admit(call, model)
        except ClientGone:
            return
        except ApiError as error:
            await send_error(send, error)
            return
        watcher = asyncio.create_task(abort_on_disconnect(receive, model, answer))
        try:
            if call.stream:
                await self._stream(call, model, answer, send)
            else:
                await self._collect(call, model, answer, send)
        finally:
            model.engine.abort(answer)
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _admit(self, call: Call, model: ServedModel) -> Answer:
        check_combinations(call)
        form = self.form(call, model)
        if form is not None:
            if call.ignore_eos:
                param = "ignore_eos"
                raise InvalidRequest(f"{param}: contradicts an answer of a given form; leave it out", param=param)
            await self._service.grammars.check(form)
            model.engine.teach(model.tokenizer.vocabulary)
        prompts = await self.prompts(call, model)
        places = model.engine.places
        if len(prompts) * call.n > places:
            raise InvalidRequest(
                f"n: {call.n} answers to {len(prompts)} prompts are more than {places}; ask for fewer",
                param="n",
            )
        seed, stops = seed_of(call), call.stops()
        choices: list[Choice] = []
        for param, prompt in prompts:
            check_prompt(prompt, model.limits, param)
            for number in range(call.n):
                silent = call.max_tokens == 0
                params = sampling_params(call, len(prompt), model.limits, model.tokenizer.eos_ids, seed, number)
                grammar = None if form is None else form.grammar
                params = replace(params, grammar=grammar, adapter=model.adapter)
                include = call.include_stop_str_in_output
                reader = self.reader(call, model)
                text = model.tokenizer.token_bytes if reader is None else model.visible_bytes
                choices.append(Choice(len(choices), prompt, params, text, stops, include, silent, reader))
        return submit(self.id_prefix, call, model, choices)

    async def _collect(self, call: Call, model: ServedModel, answer: Answer, send: Send) -> None:
        collected = [Collected(choice) for choice in answer.choices]
        try:
            async for news in answer.deltas():
                for delta in news:
                    collected[delta.choice.index].add(delta)
        except ApiError as error:
            await send_error(send, error, answer.headers)
            return
        if not answer.aborted:
            whole = self.whole(call, model, answer, [choice.whole() for choice in collected])
            await send_json(send, _encode(whole), headers=answer.headers)

    async def _stream(self, call: Call, model: ServedModel, answer: Answer, send: Send) -> None:
        spoken: set[int] = set()
        try:
            async for news in answer.deltas():
                events = b"".join(self._events(call, model, answer, news, spoken))
                if not events:
                    continue
                if not answer.streaming:
                    # Not before the first token: what fails earlier still gets a status of its own.
                    answer.streaming = True
                    await start_events(send, answer.headers)
                await send_events(send, events)
        except ApiError as error:
            if not answer.streaming:
                await send_error(send, error, answer.headers)
                return
            await send_events(send, event(error.body()) + _DONE, last=True)
            return
        if answer.aborted:
            return
        usage = b""
        if call.stream_options and call.stream_options.include_usage:
            usage = event(_encode(self.usage_chunk(model, answer, Usage.of(answer))))
        await send_events(send, usage + _DONE, last=True)

    def _events(
        self, call: Call, model: ServedModel, answer: Answer, news: Sequence[Delta], spoken: set[int]
    ) -> Iterator[bytes]:
        for delta in news:
            index = delta.choice.index
            if delta.text or delta.records or delta.finish_reason is not None:
                for chunk in self.chunks(call, model, answer, delta, index not in spoken):
                    yield event(_encode(chunk))
                spoken.add(index)


def submit(id_prefix: str, call: WorkFields, model: ServedModel, choices: list[Choice]) -> Answer:
    """Start the choices of a request; raises Overloaded or Unavailable."""
    id = f"{id_prefix}-{uuid.uuid4().hex}"
    answer = Answer(id, int(time.time()), time.monotonic(), choices, call.priority, call.deadline_s)
    model.engine.submit(answer)
    return answer


async def abort_on_disconnect(receive: Receive, model: ServedModel, answer: Answer) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    model.engine.abort(answer)
