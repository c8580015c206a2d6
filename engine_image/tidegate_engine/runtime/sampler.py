"""Choosing tokens: what each request has said so far, and the tensors that its parameters become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tidegate_engine.core.request import SamplingParams
from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.kernels.sampling import add_bias, apply_penalties, logprobs, sample
from tidegate_engine.link.messages import TokenLogprobs
from tidegate_engine.runtime.uniform import uniform


@dataclass(frozen=True, slots=True)
class Sampled:
    """By sampled row, the tokens, and their log probabilities where the request wants them."""

    tokens: list[list[int]]
    logprobs: list[list[TokenLogprobs] | None]


@dataclass(slots=True)
class _Voice:
    """A request's parameters, and how often its answer has each token; prompt tokens count 0."""

    params: SamplingParams
    counts: dict[int, int] = field(default_factory=dict)
    num_generated: int = 0

    @property
    def penalised(self) -> bool:
        params = self.params
        return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0)

    def bias(self) -> dict[int, float]:
        """What is added to logits for this request's next token."""
        params = self.params
        if params.ignore_eos or self.num_generated >= params.min_tokens:
            return params.logit_bias
        return params.logit_bias | dict.fromkeys(params.stop_token_ids, float("-inf"))


class Sampler:
    """Keeps one voice per live request; preemption leaves it alone, since what was said stays said."""

    def __init__(self) -> None:
        self._voices: dict[int, _Voice] = {}

    def add(self, id: int, prompt: Sequence[int], params: SamplingParams) -> None:
        """Get to know a request before its first row."""
        voice = _Voice(params)
        if params.repetition_penalty != 1.0:
            voice.counts = dict.fromkeys(prompt, 0)
        self._voices[id] = voice

    def remove(self, id: int) -> None:
        """Forget a request that has ended; one that is not known is no news."""
        self._voices.pop(id, None)

    def heard(self, id: int, tokens: Sequence[int]) -> None:
        """Tokens that the scheduler has taken."""
        voice = self._voices[id]
        voice.num_generated += len(tokens)
        if voice.penalised:
            for token in tokens:
                voice.counts[token] = voice.counts.get(token, 0) + 1

    def sample(self, batch: Batch, logits: torch.Tensor) -> Sampled:
        """One token for each part of the batch that samples; `logits` float32 [S, V] are changed in place."""
        parts = [part for part in batch.work if part.samples]
        if not parts:
            return Sampled([], [])
        with torch.inference_mode():
            return self._sample(parts, logits)

    def _sample(self, parts: list[Work], logits: torch.Tensor) -> Sampled:
        # A request that was aborted while its batch was in flight has no voice any more; its row is thrown away.
        silent = _Voice(SamplingParams(max_tokens=1, temperature=0.0))
        voices = [self._voices.get(part.id, silent) for part in parts]
        self._penalise(voices, logits)
        self._bias(voices, logits)
        draws = [
            uniform(voice.params.seed, voice.params.choice, part.start + len(part.token_ids))
            for part, voice in zip(parts, voices, strict=True)
        ]
        tokens = self._draw(voices, logits, draws)
        return Sampled([[token] for token in tokens.tolist()], self._logprobs(voices, logits, tokens))

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

    def _logprobs(
        self, voices: list[_Voice], logits: torch.Tensor, tokens: torch.Tensor
    ) -> list[list[TokenLogprobs] | None]:
        wanting = [row for row, voice in enumerate(voices) if voice.params.logprobs is not None]
        found: list[list[TokenLogprobs] | None] = [None] * len(voices)
        if wanting:
            k = max(voices[row].params.logprobs or 0 for row in wanting)
            chosen, ids, top = logprobs(logits[wanting], tokens[wanting], k)
            table = zip(wanting, chosen.tolist(), ids.tolist(), top.tolist(), strict=True)
            for row, own, row_ids, row_top in table:
                count = voices[row].params.logprobs or 0
                found[row] = [TokenLogprobs(own, row_ids[:count], row_top[:count])]
        return found
