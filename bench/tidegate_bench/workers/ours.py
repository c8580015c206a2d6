"""Our engine: the runtime of a pod, stepped in this process as its loop steps it.

`python -m tidegate_bench.workers.ours --model PATH --threads N`
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

from tidegate_engine.core.request import SamplingParams
from tidegate_engine.files.config_gguf import from_gguf
from tidegate_engine.files.gguf import read_gguf
from tidegate_engine.link.messages import Abort, Submit
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.process import sleep_at_barriers
from tidegate_engine.runtime.settings import parse_settings

from tidegate_bench.messages import Hello
from tidegate_bench.workers.serve import serve

if TYPE_CHECKING:
    import torch

_ROOM = 32 * (512 + 2 * 128)
"""Tokens of KV cache: the largest generation of the yardstick, without preemption."""


class Ours:
    """See Generator."""

    def __init__(self, model: Path, threads: int) -> None:
        sleep_at_barriers()  # before torch is imported, as the runtime does
        from tidegate_engine.runtime.lead import warm_engine

        config = from_gguf(read_gguf(model))
        self._kv_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim
        flags = ["--model", str(model), "--socket-fd", "0", "--threads", str(threads)]
        # In float32, which is the widest that keys and values come in.
        flags += ["--kv-cache-memory", str(4 * self._kv_bytes * _ROOM)]
        settings = parse_settings(flags)
        self._engine, self._model, self._ready = warm_engine(settings, Followers(settings), {})
        self._next_id = 0
        self._open: list[int] = []

    def hello(self) -> Hello:
        """See Generator."""
        return Hello(
            "tidegate",
            self._ready.vocab_size,
            self._ready.kernels,
            weight_bytes=_weight_bytes(self._model.network),
            kv_bytes=self._kv_bytes * self._model.kv_dtype.itemsize,
        )

    def prompt(self, ids: list[int]) -> int:
        """See Generator."""
        self._submit(ids, 1)
        self._until(1)
        return len(ids)

    def open(self, prompts: list[list[int]], new_tokens: int) -> int:
        """See Generator."""
        # The first prompts generate while the last are still computed; none may end before the yardstick is done.
        self._open = [self._submit(prompt, 2 * new_tokens) for prompt in prompts]
        silent = set(self._open)
        while silent:
            silent -= {output.id for output in self._engine.step() if output.tokens}
        return sum(map(len, prompts))

    def advance(self, steps: int) -> int:
        """See Generator."""
        return self._until(steps * len(self._open))

    def close(self) -> None:
        """See Generator."""
        self._engine.abort(Abort(self._open))
        self._open = []
        while self._engine.has_work:
            self._engine.step()

    def _submit(self, prompt: list[int], max_tokens: int) -> int:
        self._next_id += 1
        params = SamplingParams(max_tokens, temperature=0.0, ignore_eos=True)
        self._engine.submit(Submit(self._next_id, prompt, params, 0.0))
        return self._next_id

    def _until(self, tokens: int) -> int:
        found = 0
        while found < tokens:
            found += sum(len(output.tokens) for output in self._engine.step())
        return found


def _weight_bytes(network: object) -> int:
    from tidegate_engine.model.native import NativeLlama

    if isinstance(network, NativeLlama):
        return network.num_bytes
    return sum(tensor.nbytes for tensor in _weights(network).values())


def _weights(network: object) -> dict[int, torch.Tensor]:
    """By address, the tensors a decode step reads: all but the embedding, unless the head is the same memory.

    Kernels arrange weights as they like, so what is reachable counts, in whichever objects it is kept.
    """
    import torch

    found: dict[int, torch.Tensor] = {}
    seen: set[int] = set()
    ask = [value for name, value in _parts(network) if name != "embedding"]
    while ask:
        part = ask.pop()
        if id(part) in seen or isinstance(part, type | ModuleType):
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            found[part.data_ptr()] = part
        elif isinstance(part, FunctionType):
            ask += [cell.cell_contents for cell in part.__closure__ or ()]
        else:
            ask += gc.get_referents(part)
    return found


def _parts(network: object) -> list[tuple[str, object]]:
    if not is_dataclass(network):
        raise TypeError(f"a network of {type(network).__name__} has no fields to count the weights of")
    return [(field.name, getattr(network, field.name)) for field in fields(network)]


def main() -> None:
    """Serve the yardstick until it closes stdin."""
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench.workers.ours")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    found = parser.parse_args()
    serve(lambda: Ours(found.model, found.threads))


if __name__ == "__main__":
    main()
