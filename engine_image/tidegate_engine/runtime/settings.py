"""The runtime's settings: the only module of the runtime that reads flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_engine.files.quantization import Quantization

BLOCK_SIZE = 16
"""Tokens in a block of the KV cache."""


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What one rank was started with; `None` means the model's or the machine's own. Sizes are bytes."""

    model: Path
    socket_fd: int
    dtype: str
    quantization: Quantization
    kv_cache_dtype: str
    max_model_len: int | None
    tensor_parallel: int
    max_running_requests: int
    kv_cache_memory: int | None
    prefix_caching: bool
    chunked_prefill_tokens: int
    speculative: str
    speculative_tokens: int
    draft_model: Path | None
    lora: tuple[Path, ...]
    """Adapters' folders, numbered from 1 on."""
    threads: int | None
    rank: int
    rendezvous: Path | None
    """The file at which ranks find each other; rank 0 makes one for those it starts."""

    def follower_arguments(self, rank: int, socket_fd: int, rendezvous: Path) -> list[str]:
        """The command line of another rank of this model."""
        arguments = ["--model", str(self.model), "--socket-fd", str(socket_fd), "--dtype", self.dtype]
        arguments += ["--quantization", self.quantization, "--kv-cache-dtype", self.kv_cache_dtype]
        arguments += ["--rank", str(rank), "--rendezvous", str(rendezvous)]
        arguments += ["--tensor-parallel", str(self.tensor_parallel)]
        arguments += ["--max-running-requests", str(self.max_running_requests)]
        arguments += ["--chunked-prefill-tokens", str(self.chunked_prefill_tokens)]
        arguments += ["--prefix-caching" if self.prefix_caching else "--no-prefix-caching"]
        for flag, value in (
            ("--max-model-len", self.max_model_len),
            ("--kv-cache-memory", self.kv_cache_memory),
            ("--threads", self.threads),
        ):
            if value is not None:
                arguments += [flag, str(value)]
        for folder in self.lora:
            arguments += ["--lora", str(folder)]
        return arguments


def parse_settings(arguments: Sequence[str]) -> RuntimeSettings:
    """Settings of a command line that the server has written; a wrong one exits with code 2, as argparse does."""
    parser = argparse.ArgumentParser(prog="python3 -m tidegate_engine.runtime", allow_abbrev=False)
    add = parser.add_argument
    add("--model", type=Path, required=True)
    add("--socket-fd", type=int, required=True, help="an inherited end of a Unix socket pair")
    add("--dtype", choices=("auto", "float32", "float16", "bfloat16"), default="auto")
    add("--quantization", choices=("none", "int8", "int4", "fp8"), default="none")
    add("--kv-cache-dtype", choices=("auto", "float32", "float16", "bfloat16", "int8", "fp8"), default="auto")
    add("--max-model-len", type=_positive)
    add("--tensor-parallel", type=_positive, default=1)
    add("--max-running-requests", type=_positive, default=32)
    add("--kv-cache-memory", type=_positive)
    add("--prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--chunked-prefill-tokens", type=_positive, default=512)
    add("--speculative", choices=("none", "ngram", "draft"), default="none")
    add("--speculative-tokens", type=_positive, default=4)
    add("--draft-model", type=Path)
    add("--lora", type=Path, action="append", default=[])
    add("--threads", type=_positive, help="threads of this rank (default: its share of the CPU limit)")
    add("--rank", type=int, default=0, help="set by rank 0 for those it starts")
    add("--rendezvous", type=Path, help="set by rank 0 for those it starts")
    found = vars(parser.parse_args(list(arguments)))
    return RuntimeSettings(**{**found, "lora": tuple(found["lora"])})


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)
