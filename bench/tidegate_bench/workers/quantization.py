"""What each kind of quantization costs in quality, beside the float32 network: the table of docs/quantization.md.

`python -m tidegate_bench.workers.quantization --model PATH --threads N --windows N TEXT...`

The only model at hand is a GGUF whose matrices lie in groups of 32 with 16 levels each. Quantized again in the same
groups they would come back as they are, and four bits would seem free. So columns are moved by half a group before
they are quantized and back afterwards: each new group holds halves of two old ones, and has to find levels for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tidegate_engine.files.config_gguf import from_gguf
from tidegate_engine.files.gguf import read_gguf
from tidegate_engine.files.quantization import Quantization
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.reference import REFERENCE
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.build import build
from tidegate_engine.model.gguf_source import GGUFSource
from tidegate_engine.model.kv import block_bytes
from tidegate_engine.model.quantize import quantize
from tidegate_engine.model.quantized_source import QuantizedSource
from tidegate_engine.model.source import Source
from tidegate_engine.model.weights import Weights
from tidegate_engine.server.tokenizer import load_tokenizer
from torch import Tensor

from tidegate_bench.workers.quality import ChunkedPath, measure, reference_path

_HALF_A_GROUP = 16
_BLOCK_SIZE = 16


class _Plain:
    """Another source's tensors as numbers, the columns of matrices moved round."""

    def __init__(self, source: Source, by: int) -> None:
        self.path, self._source, self._by = source.path, source, by

    def names(self) -> Iterable[str]:
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(name)

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        self._source.read(name, rows, out)
        if out.dim() == 2:
            out.copy_(out.roll(self._by, dims=1))

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        return None


class _AllInFourBits(_Plain):
    """Every matrix in four bits in groups of 64: GPTQ's and AWQ's form, without what they do to choose codes."""

    def read(self, name: str, rows: slice, out: Tensor) -> None:
        super().read(name, rows, out)
        if out.dim() == 2 and "layers" in name:
            out.copy_(quantize(out.clone(), 4, 64).dequantized())


@dataclass(frozen=True, slots=True)
class _Case:
    """A line of the table."""

    name: str
    wrap: Callable[[Source], Source]
    kv: torch.dtype = torch.float32


def _loaded(quantization: Quantization) -> Callable[[Source], Source]:
    return lambda source: QuantizedSource(source, quantization)


_CASES = (
    _Case("weights int8", _loaded("int8")),
    _Case("weights int4", _loaded("int4")),
    _Case("weights fp8", _loaded("fp8")),
    _Case("all matrices of layers in 4 bits, groups of 64", lambda source: _AllInFourBits(source, 0)),
    _Case("keys and values float16", lambda source: source, torch.float16),
    _Case("keys and values int8", lambda source: source, torch.int8),
    _Case("keys and values fp8", lambda source: source, torch.float8_e4m3fn),
)


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench.workers.quantization")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--windows", type=int, default=2, help="of 1,024 tokens, of each text")
    parser.add_argument("texts", type=Path, nargs="+")
    found = parser.parse_args()
    torch.set_num_threads(found.threads)
    tokenizer = load_tokenizer(found.model)
    texts = {path.stem: tokenizer.encode(path.read_text(), add_special_tokens=False) for path in found.texts}
    file = read_gguf(found.model)
    config = from_gguf(file)
    reference = reference_path(found.model)
    print("| what | text | perplexity | of float32 | mean KL, nats | same choice | cached tokens in a MiB |")
    print("|---|---|---|---|---|---|---|")
    for case in _CASES:
        source = _Plain(case.wrap(_Plain(GGUFSource(file, config), _HALF_A_GROUP)), -_HALF_A_GROUP)
        weights = Weights(source, torch.float32, "cpu")
        network = build(config, weights, Shard(), REFERENCE, "cpu")
        ours = ChunkedPath(network.forward, config.num_layers, config.num_kv_heads, config.head_dim, case.kv)
        block = block_bytes(_BLOCK_SIZE, config.num_layers, config.num_kv_heads, config.head_dim, case.kv)
        for name, tokens in texts.items():
            seen = measure(name, tokens[: found.windows * 1024], ours, reference)
            print(
                f"| {case.name} | {name} | {seen.ours:.3f} | {(seen.ratio - 1) * 100:+.2f} % | {seen.mean_kl:.5f} "
                f"| {seen.same_choice * 100:.1f} % | {2**20 * _BLOCK_SIZE / block:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
