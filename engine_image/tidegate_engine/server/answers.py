"""Answers as they grow: a request, its choices, and what of each is ready to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.link.messages import Output, TokenLogprobs
from tidegate_engine.server.detokenizer import Detokenizer, StopMatcher
from tidegate_engine.server.errors import ApiError
from tidegate_engine.server.tool_reader import ToolReader


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token with its log probabilities and where its text begins in the answer, in characters."""

    token: int
    logprobs: TokenLogprobs
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What a choice has gained since it was last asked."""

    choice: Choice
    text: str
    records: list[TokenRecord]
    finish_reason: FinishReason | None


class Choice:
    """One answer: takes tokens from the runtime, gives text. Bounded by `max_tokens`, however slowly it is read."""

    __slots__ = (
        "_decoded", "_detokenizer", "_emitted", "_fresh", "_records", "_silent", "_stop", "_text", "cached_tokens",
        "finish_reason", "first_at", "index", "last_at", "params", "prompt", "prompt_logprobs", "reader", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        prompt: list[int],
        params: SamplingParams,
        token_bytes: Sequence[bytes],
        stops: Sequence[str] = (),
        include_stop: bool = False,
        silent: bool = False,
        reader: ToolReader | None = None,
    ) -> None:
        """`reader` finds calls in the text, and is kept here for whoever sends it.

        `silent`: only the prompt's log probabilities are wanted, and the runtime's token is none of the answer's.
        """
        self.index = index
        self.prompt = prompt
        self.params = params
        self.tokens = 0
        self.cached_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.prompt_logprobs: list[TokenLogprobs] | None = None
        """Of the prompt's second token and on; there before the first text is, where it was asked for."""
        self.reader = reader
        self._silent = silent
        self._detokenizer = Detokenizer(token_bytes)
        self._stop = StopMatcher(stops, include_stop)
        self._text: list[str] = []
        self._records: list[TokenRecord] = []
        self._decoded = 0
        self._emitted = 0
        self._fresh = False

    def push(self, output: Output, now: float) -> bool:
        """Take an output; True where a stop string ended the answer here, so that the runtime must be told."""
        self._fresh = True
        if self.first_at is None:
            self.cached_tokens = output.cached_tokens
            self.prompt_logprobs = output.prompt_logprobs
        if self._silent:
            self.finish_reason = output.finish_reason and FinishReason.LENGTH
            return False
        ends = output.finish_reason is FinishReason.STOP
        for position, token in enumerate(output.tokens):
            self.tokens += 1
            self.last_at = now
            if self.first_at is None:
                self.first_at = now
            last = position == len(output.tokens) - 1
            if ends and last and token in self.params.stop_token_ids:
                break
            self._push_token(token, output.logprobs[position] if output.logprobs else None)
            if self._stop.matched:
                self.finish_reason = FinishReason.STOP
                self._records = [record for record in self._records if record.start < self._emitted]
                return output.finish_reason is None
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason
            self._emit(self._stop.flush())
        return False

    def _push_token(self, token: int, logprobs: TokenLogprobs | None) -> None:
        text = self._detokenizer.push(token)
        start, self._decoded = self._decoded, self._decoded + len(text)
        if logprobs is not None:
            self._records.append(TokenRecord(token, logprobs, start, self._decoded))
        self._emit(self._stop.push(text) if text and self.tokens >= self.params.min_tokens else text)

    def _emit(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._emitted += len(text)

    @property
    def has_news(self) -> bool:
        """Whether anything came since `take`."""
        return self._fresh

    def take(self) -> Delta:
        """What may be sent now; log probabilities wait for their token's text."""
        self._fresh = False
        text, self._text = "".join(self._text), []
        if self.finish_reason is not None:
            records, self._records = self._records, []
        elif self._records:
            ready = sum(1 for record in self._records if record.end <= self._emitted)
            records, self._records = self._records[:ready], self._records[ready:]
        else:
            records = []
        return Delta(self, text, records, self.finish_reason)


class Vector(Choice):
    """The embedding of one input, where others have an answer."""

    __slots__ = ("embedding",)

    def __init__(self, index: int, prompt: list[int], adapter: int = 0) -> None:
        params = SamplingParams(max_tokens=1, temperature=0.0, embed=True, adapter=adapter)
        super().__init__(index, prompt, params, ())
        self.embedding = b""
        """Little-endian float32."""

    def push(self, output: Output, now: float) -> bool:
        """See Choice; there is one output, with the embedding or with the reason for having none."""
        self._fresh = True
        self.cached_tokens = output.cached_tokens
        self.embedding = output.embedding or b""
        self.finish_reason = output.finish_reason
        return False


@dataclass(slots=True, eq=False)
class Answer:
    """One HTTP request: all its choices, and the moment it came (seconds of the monotonic clock)."""

    id: str
    created: int
    arrival: float
    choices: list[Choice]
    priority: int = 0
    deadline_s: float | None = None
    """After arrival, seconds."""
    ids: list[int] = field(default_factory=list)
    """The runtime's ids of the choices that still run there."""
    first_at: float | None = None
    aborted: bool = False
    streaming: bool = False
    """Whether the head of a stream has been sent."""
    failure: ApiError | None = None
    timer: asyncio.TimerHandle | None = None
    """Of the deadline."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def headers(self) -> dict[str, str]:
        """Of its response: the name under which the admin port's `/debug/requests/` knows it."""
        return {"X-Request-Id": self.id}

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish reason."""
        return all(choice.finish_reason is not None for choice in self.choices)

    def wake(self) -> None:
        """Let whoever reads `deltas` look again."""
        self._news.set()

    async def deltas(self) -> AsyncIterator[list[Delta]]:
        """News of the choices until all are finished; ends early where the client went away, raises its failure."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self.aborted:
                return
            if self.failure is not None:
                raise self.failure
            finished = self.finished
            if news := [choice.take() for choice in self.choices if choice.has_news]:
                yield news
            if finished:
                return

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts; choices of one prompt share it."""
        return sum({id(choice.prompt): len(choice.prompt) for choice in self.choices}.values())

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache, each prompt once."""
        return sum({id(choice.prompt): choice.cached_tokens for choice in reversed(self.choices)}.values())

    @property
    def generated_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(choice.tokens for choice in self.choices)
