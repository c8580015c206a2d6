"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from tidegate_engine.server.answers import Answer, Delta
from tidegate_engine.server.generate import GenerateEndpoint
from tidegate_engine.server.logprobs import Echo, completion_logprobs
from tidegate_engine.server.prompts import token_ids
from tidegate_engine.server.protocol import CompletionRequest, read_completion
from tidegate_engine.server.responses import Completion, CompletionChoice, Usage
from tidegate_engine.server.service import ServedModel


class CompletionEndpoint(GenerateEndpoint[CompletionRequest]):
    """Prompts in, their continuations out."""

    id_prefix = "cmpl"

    def read(self, body: bytes) -> CompletionRequest:
        """See GenerateEndpoint."""
        return read_completion(body)

    async def prompts(self, call: CompletionRequest, model: ServedModel) -> list[tuple[str, list[int]]]:
        """See GenerateEndpoint."""
        return await token_ids("prompt", call.prompt, model.tokenizer)

    def whole(
        self, call: CompletionRequest, model: ServedModel, answer: Answer, choices: Sequence[Delta]
    ) -> msgspec.Struct:
        """See GenerateEndpoint."""
        found = [self._choice(call, model, delta, first=True) for delta in choices]
        return Completion(answer.id, answer.created, model.name, found, Usage.of(answer))

    def chunks(
        self, call: CompletionRequest, model: ServedModel, answer: Answer, delta: Delta, first: bool
    ) -> list[msgspec.Struct]:
        """See GenerateEndpoint."""
        usage: UnsetType | None = None if call.stream_options and call.stream_options.include_usage else UNSET
        choice = self._choice(call, model, delta, first)
        return [Completion(answer.id, answer.created, model.name, [choice], usage)]

    def usage_chunk(self, model: ServedModel, answer: Answer, usage: Usage) -> msgspec.Struct:
        """See GenerateEndpoint."""
        return Completion(answer.id, answer.created, model.name, [], usage)

    def _choice(self, call: CompletionRequest, model: ServedModel, delta: Delta, first: bool) -> CompletionChoice:
        text = delta.text
        if first and call.echo:
            text = model.tokenizer.text_of(delta.choice.prompt) + text
        logprobs = None
        if call.logprobs is not None:
            echo = Echo.of(delta.choice, model.tokenizer) if call.echo else None
            logprobs = completion_logprobs(model.tokenizer, call.logprobs, delta.records, echo, first)
        return CompletionChoice(delta.choice.index, text, logprobs, delta.finish_reason)
