"""Steps for a model by hand: which request computes how many tokens, without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tidegate_engine.model import LoadedModel
from tidegate_engine.model.batch import ForwardBatch
from tidegate_engine.model.kv import KVCache

BLOCK_SIZE = 16


class Sequences:
    """Some requests of one model, each with blocks of its own, scattered over the cache."""

    def __init__(
        self, model: LoadedModel, prompts: Sequence[Sequence[int]], longest: int, adapters: Sequence[int] = ()
    ) -> None:
        """`adapters` are the requests' own, 0 for the model itself; none given: all of them."""
        self.model = model
        self.adapters = adapters
        self.tokens = [list(prompt) for prompt in prompts]
        self.computed = [0] * len(prompts)
        each = -(-longest // BLOCK_SIZE)
        order = torch.randperm(each * len(prompts), generator=torch.Generator().manual_seed(0))
        self.tables = (order.view(len(prompts), each) + 1).tolist()
        config = model.config
        self.kv = KVCache.allocate(
            each * len(prompts) + 1,
            BLOCK_SIZE,
            config.num_layers,
            model.kv_heads,
            config.head_dim,
            model.kv_dtype,
            model.device,
        )

    def step(self, new: Sequence[int] | None = None, sampled: Sequence[int] | None = None) -> torch.Tensor:
        """Compute so many tokens of each request, or all that it has; logits [S, V] after the last of each.

        `sampled` are the requests whose logits are wanted, all of them where it is None.
        """
        counts = new or [len(tokens) - done for tokens, done in zip(self.tokens, self.computed, strict=True)]
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for row, count in enumerate(counts):
            places = range(self.computed[row], self.computed[row] + count)
            ids += [self.tokens[row][at] for at in places]
            positions += places
            slots += [self.tables[row][at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE for at in places]
            starts.append(len(ids))
            self.computed[row] += count
        device = self.model.device
        ends = starts[1:] if sampled is None else [starts[row + 1] for row in sampled]
        batch = ForwardBatch(
            token_ids=torch.tensor(ids, device=device),
            positions=torch.tensor(positions, device=device),
            slots=torch.tensor(slots, device=device),
            query_start=torch.tensor(starts, dtype=torch.int32, device=device),
            context_lens=torch.tensor(self.computed, dtype=torch.int32, device=device),
            block_tables=torch.tensor(self.tables, dtype=torch.int32, device=device),
            logit_rows=torch.tensor(ends, dtype=torch.int64, device=device) - 1,
            max_query_len=max(counts),
            max_context_len=max(self.computed),
            adapters=[
                (
                    adapter,
                    torch.tensor(
                        [
                            at
                            for row, own in enumerate(self.adapters)
                            if own == adapter
                            for at in range(starts[row], starts[row + 1])
                        ],
                        device=device,
                    ),
                )
                for adapter in sorted(set(self.adapters) - {0})
            ],
        )
        with torch.inference_mode():
            return self.model.forward(batch, self.kv)


def greedy(model: LoadedModel, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """The next tokens of each prompt, all prompts in one batch."""
    sequences = Sequences(model, prompts, max(map(len, prompts)) + count)
    for _ in range(count):
        for tokens, best in zip(sequences.tokens, sequences.step().argmax(dim=-1).tolist(), strict=True):
            tokens.append(best)
    return [tokens[len(prompt) :] for tokens, prompt in zip(sequences.tokens, prompts, strict=True)]
