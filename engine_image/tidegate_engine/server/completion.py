"""`POST /v1/completions`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from tidegate_engine.server.answers import Answer, Delta
from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.generate import LONG_TEXT, GenerateEndpoint
from tidegate_engine.server.logprobs import completion_logprobs
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
        texts_or_ids = _prompts(call)
        single = len(texts_or_ids) == 1
        found: list[tuple[str, list[int]]] = []
        for position, prompt in enumerate(texts_or_ids):
            if isinstance(prompt, str):
                if len(prompt) > LONG_TEXT:
                    prompt = await asyncio.to_thread(model.tokenizer.encode, prompt, True)
                else:
                    prompt = model.tokenizer.encode(prompt, add_special_tokens=True)
            found.append(("prompt" if single else f"prompt[{position}]", prompt))
        return found

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
        logprobs = completion_logprobs(model.tokenizer, delta) if call.logprobs is not None else None
        return CompletionChoice(delta.choice.index, text, logprobs, delta.finish_reason)


def _prompts(call: CompletionRequest) -> list[str | list[int]]:
    """One prompt a list entry, whichever of the four shapes they came in."""
    if isinstance(call.prompt, str):
        return [call.prompt]
    ids = [entry for entry in call.prompt if isinstance(entry, int)]
    if len(ids) == len(call.prompt):
        return [ids]
    prompts = [entry for entry in call.prompt if not isinstance(entry, int)]
    if len(prompts) != len(call.prompt) or len({type(entry) for entry in prompts}) != 1:
        raise InvalidRequest(
            "prompt: a list that mixes text and token ids; give a text, a list of texts, a list of ids, or a list of "
            "such lists",
            param="prompt",
        )
    return prompts
