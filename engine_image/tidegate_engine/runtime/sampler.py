"""Choosing tokens: what each request has said so far, and the tensors that its parameters become.

Why drafts change no token, drawn ones included: the random number of a position comes from (seed, choice, position)
alone. Row j of a part with drafts has the logits, the penalties and the number that a step without drafts would have,
provided the guesses before it are what that step would have said; so the token drawn there is the same token. It is
taken while that holds, that is up to the first guess which is not the token drawn in its place, and the wrong guess
costs only its own computing. So the answer is equal, not only in distribution, and nothing needs to be accepted by
chance as in Leviathan et al., "Fast inference from transformers via speculative decoding", 2023. A draft that draws
with the same number always agrees where its distribution is the same; where it is not, it agrees less often than the
best rule of acceptance could, which is the price of equal tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Batch
from tidegate_engine.kernels.sampling import add_bias, apply_penalties, logprobs, sample
from tidegate_engine.link.messages import TokenLogprobs
from tidegate_engine.runtime.constraints import Constraint, ConstraintBroken, Wanted, constrain
from tidegate_engine.runtime.uniform import uniform


@dataclass(frozen=True, slots=True)
class Row:
    """One row of logits: whose next token it is, at which position, and which guesses would have been said by then."""

    id: int
    position: int
    ahead: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """By part that samples, the tokens, and their log probabilities where the request wants them."""

    tokens: list[list[int]]
    logprobs: list[list[TokenLogprobs] | None]


@dataclass(slots=True)
class _Voice:
    """A request's parameters, and how often its answer has each token; prompt tokens count 0."""

    params: SamplingParams
    constraint: Constraint | None = None
    counts: dict[int, int] = field(default_factory=dict)
    num_generated: int = 0

    @property
    def penalised(self) -> bool:
        params = self.params
        return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0)

    @property
    def held_back(self) -> tuple[int, ...]:
        """Tokens that would end the answer too early."""
        params = self.params
        return () if params.ignore_eos or self.num_generated >= params.min_tokens else params.stop_token_ids

    def bias(self) -> dict[int, float]:
        """What is added to logits for this request's next token; a constraint sees to the end itself."""
        if self.constraint is not None or not self.held_back:
            return self.params.logit_bias
        return self.params.logit_bias | dict.fromkeys(self.held_back, float("-inf"))

    def hear(self, tokens: Sequence[int]) -> None:
        """Take note of what was said."""
        self.num_generated += len(tokens)
        if self.penalised:
            for token in tokens:
                self.counts[token] = self.counts.get(token, 0) + 1

    def after(self, ahead: Sequence[int]) -> _Voice:
        """This voice, had it said that much more."""
        if not ahead:
            return self
        voice = replace(self, counts=dict(self.counts) if self.penalised else self.counts)
        voice.hear(ahead)
        return voice


_SILENT = SamplingParams(max_tokens=1, temperature=0.0)
"""Of a request that was aborted while its batch was in flight; its row is thrown away."""


class Sampler:
    """Keeps one voice per live request; preemption leaves it alone, since what was said stays said."""

    def __init__(self) -> None:
        self._voices: dict[int, _Voice] = {}
        self._broken: dict[int, str] = {}

    def add(self, id: int, prompt: Sequence[int], params: SamplingParams, constraint: Constraint | None = None) -> None:
        """Get to know a request before its first row."""
        voice = _Voice(params, constraint)
        if params.repetition_penalty != 1.0:
            voice.counts = dict.fromkeys(prompt, 0)
        self._voices[id] = voice

    def remove(self, id: int) -> None:
        """Forget a request that has ended; one that is not known is no news."""
        self._voices.pop(id, None)
        self._broken.pop(id, None)

    def heard(self, id: int, tokens: Sequence[int]) -> None:
        """Tokens that the scheduler has taken."""
        voice = self._voices[id]
        voice.hear(tokens)
        if voice.constraint is not None:
            try:
                voice.constraint.advance(tokens)
            except ConstraintBroken as error:
                self._broken[id] = str(error)

    @property
    def broken(self) -> dict[int, str]:
        """By request, why its grammar cannot go on: such a request gets no more tokens, and has to be ended."""
        return dict(self._broken)

    def sample(self, batch: Batch, logits: torch.Tensor) -> Sampled:
        """For each part of the batch that samples, the guesses that came true and one token more.

        `logits` float32 [S, V], a row for the last known token of a part and one for each guess, are changed in place.
        """
        parts = [part for part in batch.work if part.samples]
        if not parts:
            return Sampled([], [])
        rows: list[Row] = []
        guesses: list[tuple[int, ...]] = []
        for part in parts:
            end = part.start + len(part.token_ids) - part.drafts
            drafts = part.token_ids[len(part.token_ids) - part.drafts :]
            rows += [Row(part.id, end + count, drafts[:count]) for count in range(part.num_rows)]
            guesses.append(drafts)
        with torch.inference_mode():
            voices = [self._voice(row) for row in rows]
            drawn = self._choose(voices, rows, logits)
            known = self._logprobs(voices, logits, drawn)
        tokens = drawn.tolist()
        sampled = Sampled([], [])
        first = 0
        for part, drafts in zip(parts, guesses, strict=True):
            count = 0 if part.id in self._broken else accepted(drafts, tokens[first : first + len(drafts)]) + 1
            last = first + count
            sampled.tokens.append(tokens[first:last])
            found = [row for row in known[first:last] if row is not None]
            sampled.logprobs.append(found or None)
            first += len(drafts) + 1
        return sampled

    def draw(self, rows: Sequence[Row], logits: torch.Tensor) -> list[int]:
        """A token for each row of another model's `logits` float32 [S, V], by the requests' own parameters.

        The random number is that of the position, so that a guess is drawn as the token itself will be.
        """
        with torch.inference_mode():
            return self._choose([self._voice(row) for row in rows], rows, logits).tolist()

    def _voice(self, row: Row) -> _Voice:
        voice = self._voices.get(row.id)
        return _Voice(_SILENT) if voice is None else voice.after(row.ahead)

    def _choose(self, voices: list[_Voice], rows: Sequence[Row], logits: torch.Tensor) -> torch.Tensor:
        self._penalise(voices, logits)
        self._bias(voices, logits)
        self._constrain(voices, rows, logits)
        draws = [
            uniform(voice.params.seed, voice.params.choice, row.position)
            for voice, row in zip(voices, rows, strict=True)
        ]
        return self._draw(voices, logits, draws)

    def _constrain(self, voices: list[_Voice], rows: Sequence[Row], logits: torch.Tensor) -> None:
        wanted = [
            Wanted(index, row.id, voice.constraint, row.ahead, voice.held_back)
            for index, (voice, row) in enumerate(zip(voices, rows, strict=True))
            if voice.constraint is not None and row.id not in self._broken
        ]
        self._broken |= constrain(logits, wanted)

    def _draw(self, voices: list[_Voice], logits: torch.Tensor, draws: list[float]) -> torch.Tensor:
        params = [voice.params for voice in voices]
        if all(p.temperature == 0 for p in params):
            return logits.argmax(dim=-1)
        device = logits.device
        return sample(
            logits,
            temperature=torch.tensor([p.temperature for p in params], dtype=torch.float32, device=device),
            top_k=torch.tensor([max(0, p.top_k) for p in params], dtype=torch.int64, device=device),
            top_p=torch.tensor([p.top_p for p in params], dtype=torch.float32, device=device),
            min_p=torch.tensor([p.min_p for p in params], dtype=torch.float32, device=device),
            uniform=torch.tensor(draws, dtype=torch.float64, device=device),
        )

    def _penalise(self, voices: list[_Voice], logits: torch.Tensor) -> None:
        if not any(voice.penalised and voice.counts for voice in voices):
            return
        entries = [list(voice.counts.items()) if voice.penalised and voice.counts else [(0, 0)] for voice in voices]
        widest = max(len(row) for row in entries)
        rows = [row + row[:1] * (widest - len(row)) for row in entries]
        device = logits.device
        strengths = torch.tensor(
            [
                (p.presence_penalty, p.frequency_penalty, p.repetition_penalty)
                for p in (voice.params for voice in voices)
            ],
            dtype=torch.float32,
            device=device,
        )
        apply_penalties(
            logits,
            torch.tensor([[token for token, _ in row] for row in rows], dtype=torch.int64, device=device),
            torch.tensor([[count for _, count in row] for row in rows], dtype=torch.float32, device=device),
            *strengths.unbind(1),
        )

    def _bias(self, voices: list[_Voice], logits: torch.Tensor) -> None:
        entries = [(row, token, value) for row, voice in enumerate(voices) for token, value in voice.bias().items()]
        if entries:
            rows, tokens, values = zip(*entries, strict=True)
            device = logits.device
            add_bias(
                logits,
                torch.tensor(rows, dtype=torch.int64, device=device),
                torch.tensor(tokens, dtype=torch.int64, device=device),
                torch.tensor(values, dtype=torch.float32, device=device),
            )

    def _logprobs(self, voices: list[_Voice], logits: torch.Tensor, tokens: torch.Tensor) -> list[TokenLogprobs | None]:
        wanting = [row for row, voice in enumerate(voices) if voice.params.logprobs is not None]
        found: list[TokenLogprobs | None] = [None] * len(voices)
        if wanting:
            k = max(voices[row].params.logprobs or 0 for row in wanting)
            chosen, ids, top = logprobs(logits[wanting], tokens[wanting], k)
            table = zip(wanting, chosen.tolist(), ids.tolist(), top.tolist(), strict=True)
            for row, own, row_ids, row_top in table:
                count = voices[row].params.logprobs or 0
                # A forbidden token's is -inf, which JSON cannot say: there are only as many as are allowed.
                count = min(count, sum(value > -math.inf for value in row_top))
                found[row] = TokenLogprobs(own, row_ids[:count], row_top[:count])
        return found


def accepted(drafts: Sequence[int], tokens: Sequence[int]) -> int:
    """How many of the guesses came true before the first that did not."""
    pairs = zip(drafts, tokens, strict=True)
    return next((count for count, (guess, token) in enumerate(pairs) if guess != token), len(drafts))
