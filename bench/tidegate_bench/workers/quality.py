"""How well the default path predicts text, beside a float32 network of the same weights, dequantized.

`python -m tidegate_bench.workers.quality --model PATH --threads N TEXT...` prints one JSON line a text.
Source of the measure: the perplexity and KL divergence of llama.cpp's `llama-perplexity`, with every position counted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from tidegate_engine.files.config_gguf import from_gguf
from tidegate_engine.files.gguf import read_gguf
from tidegate_engine.kernels.reference import REFERENCE
from tidegate_engine.model import load
from tidegate_engine.model.batch import ForwardBatch, Shard
from tidegate_engine.model.build import build
from tidegate_engine.model.gguf_source import GGUFSource
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.weights import Weights
from tidegate_engine.server.tokenizer import load_tokenizer
from torch import Tensor

from tidegate_bench.quality import TextQuality

WINDOW = 1024
"""Tokens that are read together; each window begins with nothing before it."""
CHUNK = 512
"""Tokens of a step, as the engine's budget has it."""
_BLOCK = 16

Logits = Callable[[list[int]], Iterator[Tensor]]
"""A window's tokens to the logits after each, float32 [CHUNK, V] at a time."""


class ChunkedPath:
    """A network and a cache, fed a window as the engine feeds a prompt: in chunks."""

    def __init__(
        self,
        forward: Callable[[ForwardBatch, KVCache], Tensor],
        layers: int,
        heads: int,
        width: int,
        dtype: torch.dtype,
    ) -> None:
        self._forward = forward
        self._kv = KVCache.allocate(WINDOW // _BLOCK, _BLOCK, layers, heads, width, dtype, "cpu")

    def __call__(self, window: list[int]) -> Iterator[Tensor]:
        table = torch.arange(WINDOW // _BLOCK, dtype=torch.int32).unsqueeze(0)
        for start in range(0, len(window), CHUNK):
            end = min(start + CHUNK, len(window))
            positions = torch.arange(start, end)
            batch = ForwardBatch(
                token_ids=torch.tensor(window[start:end]),
                positions=positions,
                slots=positions,
                query_start=torch.tensor([0, end - start], dtype=torch.int32),
                context_lens=torch.tensor([end], dtype=torch.int32),
                block_tables=table,
                logit_rows=torch.arange(end - start),
                max_query_len=end - start,
                max_context_len=end,
            )
            yield self._forward(batch, self._kv)


def default_path(model: Path) -> Logits:
    """The engine's own: whatever `load` chooses for this machine."""
    loaded = load(model, Shard(), "auto", None)
    config = loaded.config
    return ChunkedPath(loaded.forward, config.num_layers, loaded.kv_heads, config.head_dim, loaded.kv_dtype)


def reference_path(model: Path) -> Logits:
    """The file's weights dequantized to float32, computed by the reference kernels."""
    file = read_gguf(model)
    config = from_gguf(file)
    weights = Weights(GGUFSource(file, config), torch.float32, "cpu")
    network = build(config, weights, Shard(), REFERENCE, "cpu")
    return ChunkedPath(network.forward, config.num_layers, config.num_kv_heads, config.head_dim, torch.float32)


def measure(name: str, tokens: list[int], ours: Logits, reference: Logits) -> TextQuality:
    """Whole windows of a text; what is left over at its end is not read."""
    windows = [tokens[start : start + WINDOW] for start in range(0, len(tokens) - WINDOW + 1, WINDOW)]
    own_loss = true_loss = divergence = agreed = 0.0
    count = 0
    for window in windows:
        following = torch.tensor([*window[1:], -1])
        for index, (own, true) in enumerate(zip(ours(window), reference(window), strict=True)):
            wanted = following[index * CHUNK : index * CHUNK + len(own)]
            wanted = wanted[wanted >= 0]  # nothing is known to follow a window's last token
            own, true = own[: len(wanted)].log_softmax(-1), true[: len(wanted)].log_softmax(-1)
            own_loss -= own.gather(1, wanted.unsqueeze(1)).sum(dtype=torch.float64).item()
            true_loss -= true.gather(1, wanted.unsqueeze(1)).sum(dtype=torch.float64).item()
            divergence += (true.exp() * (true - own)).sum(dtype=torch.float64).item()
            agreed += (own.argmax(-1) == true.argmax(-1)).sum().item()
            count += len(wanted)
    return TextQuality(
        name, count, math.exp(true_loss / count), math.exp(own_loss / count), divergence / count, agreed / count
    )


def main() -> None:
    """Measure each text, and say so in a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench.workers.quality")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--windows", type=int, help="of each text (default: all)")
    parser.add_argument("texts", type=Path, nargs="+")
    found = parser.parse_args()
    torch.set_num_threads(found.threads)
    tokenizer = load_tokenizer(found.model)
    with torch.inference_mode():
        ours, reference = default_path(found.model), reference_path(found.model)
        for text in found.texts:
            tokens = tokenizer.encode(text.read_text(encoding="utf-8"), add_special_tokens=False)
            if found.windows is not None:
                tokens = tokens[: found.windows * WINDOW]
            sys.stdout.write(json.dumps(asdict(measure(text.stem, tokens, ours, reference))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
