"""llama.cpp by its batch interface, in the environment of llama-cpp-python.

`python -m tidegate_bench.workers.llama_cpp --model PATH --threads N`

It gets its best settings: flash attention, and a KV cache for each sequence. Measured on 2 Zen 4 cores with the
AVX2 build, tokens/s at 8 requests of context 64 / 32 of 64 / 32 of 512: 234 / 246 / 151; with one cache for all
217 / 240 / 10; without flash attention 166 / 228 / 144.
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import llama_cpp as ll
import numpy as np

from tidegate_bench.messages import Hello
from tidegate_bench.workers.serve import serve

BATCH = 512
"""Tokens of a call, as our engine's step budget."""


class PeerFailed(RuntimeError):
    """A call of llama.cpp said that it had not done what was asked."""


class Model:
    """A loaded file, and the batch that its contexts are fed with."""

    def __init__(self, path: Path, threads: int) -> None:
        self._silence = ll.llama_log_callback(lambda level, text, data: None)
        ll.llama_log_set(self._silence, None)
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(str(path).encode(), ll.llama_model_default_params())
        if not self.model:
            raise PeerFailed(f"{path}: llama.cpp cannot load it")
        self.threads = threads
        self.vocab_size = int(ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model)))
        self.batch = ll.llama_batch_init(BATCH, 0, 1)

    def context(self, sequences: int, length: int) -> Context:
        """Room for `sequences` of `length` tokens each."""
        return Context(self, sequences, length)


class Context:
    """Sequences in progress."""

    def __init__(self, model: Model, sequences: int, length: int) -> None:
        params = ll.llama_context_default_params()
        params.n_ctx = sequences * length
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = model.threads
        params.n_outputs_max_per_seq = 0
        params.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.kv_unified = False
        self._model = model
        self._context = ll.llama_init_from_model(model.model, params)
        if not self._context:
            raise PeerFailed(f"no context for {sequences} sequences of {length} tokens")

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> list[int]:
        """Compute (token, position, sequence, whether its successor is wanted); the likeliest successors."""
        batch = self._model.batch
        batch.n_tokens = len(tokens)
        for row, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[row] = token
            batch.pos[row] = position
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
            batch.logits[row] = wanted
        code = ll.llama_decode(self._context, batch)
        if code:
            raise PeerFailed(f"llama_decode of {len(tokens)} tokens returned {code}")
        return [self._likeliest(row) for row, (*_, wanted) in enumerate(tokens) if wanted]

    def copy(self, source: int, targets: range) -> None:
        """Give sequences the keys and values of another, each in its own memory."""
        size = ll.llama_state_seq_get_size(self._context, source)
        state = (ctypes.c_uint8 * size)()
        ll.llama_state_seq_get_data(self._context, state, size, source)
        for target in targets:
            if not ll.llama_state_seq_set_data(self._context, state, size, target):
                raise PeerFailed(f"sequence {target}: no room for a copy of {size} bytes")

    def remove(self, sequence: int) -> None:
        """Forget a sequence."""
        ll.llama_memory_seq_rm(ll.llama_get_memory(self._context), sequence, -1, -1)

    def close(self) -> None:
        """Give the memory back."""
        ll.llama_free(self._context)

    def _likeliest(self, row: int) -> int:
        logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(self._context, row), (self._model.vocab_size,))
        return int(logits.argmax())


class LlamaCpp:
    """See Generator."""

    def __init__(self, path: Path, threads: int) -> None:
        self._model = Model(path, threads)
        self._alone = self._model.context(1, BATCH + 1)
        self._together: Context | None = None
        self._last: list[int] = []
        self._position = 0

    def hello(self) -> Hello:
        """See Generator."""
        features = ll.llama_print_system_info().decode().strip(" |")
        return Hello(
            "llama.cpp", self._model.vocab_size, f"{features}; flash attention, {self._model.threads} threads", 0, 0
        )

    def prompt(self, ids: list[int]) -> int:
        """See Generator."""
        self._alone.remove(0)
        _compute(self._alone, ids)
        return len(ids)

    def open(self, prompts: list[list[int]], new_tokens: int) -> int:
        """See Generator. One prompt is computed and copied: what it says does not change the speed of what follows."""
        count, length = len(prompts), len(prompts[0])
        self._together = self._model.context(count, length + 2 * new_tokens)
        token = _compute(self._together, prompts[0])
        self._together.copy(0, range(1, count))
        self._last = [token] * count
        self._position = length
        return length

    def advance(self, steps: int) -> int:
        """See Generator."""
        if self._together is None:
            raise PeerFailed("nothing is open")
        for _ in range(steps):
            rows = [(token, self._position, sequence, True) for sequence, token in enumerate(self._last)]
            self._last = self._together.decode(rows)
            self._position += 1
        return steps * len(self._last)

    def close(self) -> None:
        """See Generator."""
        if self._together is not None:
            self._together.close()
            self._together = None


def _compute(context: Context, ids: list[int]) -> int:
    """The first token after a prompt in sequence 0."""
    last = len(ids) - 1
    found: list[int] = []
    for start in range(0, len(ids), BATCH):
        part = ids[start : start + BATCH]
        found = context.decode([(token, start + at, 0, start + at == last) for at, token in enumerate(part)])
    return found[0]


def main() -> None:
    """Serve the yardstick until it closes stdin."""
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench.workers.llama_cpp")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    found = parser.parse_args()
    serve(lambda: LlamaCpp(found.model, found.threads))


if __name__ == "__main__":
    main()
