"""The engine's settings: the only module that reads flags and the environment."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

TERMINATION_LOG = Path("/dev/termination-log")
DTYPES = ("auto", "float32", "float16", "bfloat16")
SPECULATIVE = ("none", "ngram", "draft")
MOST_GUESSES = 16
KV_CACHE_DTYPES = (*DTYPES, "int8", "fp8")
QUANTIZATIONS = ("none", "int8", "int4", "fp8")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class SettingsError(ValueError):
    """A flag cannot be used; its message is one line naming the flag, the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A low-rank adapter and the name that clients ask for."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pod was asked to run; `None` means the model's or the machine's own. Times are seconds, sizes bytes."""

    model: Path
    served_name: str
    max_model_len: int | None = None
    dtype: str = "auto"
    quantization: str = "none"
    tensor_parallel: int = 1
    max_running_requests: int = 32
    max_queued_requests: int = 256
    kv_cache_memory: int | None = None
    kv_cache_dtype: str = "auto"
    prefix_caching: bool = True
    chunked_prefill_tokens: int = 512
    speculative: str = "none"
    speculative_tokens: int = 4
    draft_model: Path | None = None
    lora: tuple[Adapter, ...] = ()
    host: str = "0.0.0.0"
    port: int = 8000
    admin_port: int = 9000
    drain_timeout: float = 300.0
    endpoint_lag: float = 5.0
    max_body_size: int = 8 * 2**20
    termination_log: Path = TERMINATION_LOG

    def runtime_arguments(self) -> list[str]:
        """The runtime's share of the command line, without the link's file descriptor."""
        arguments = ["--model", str(self.model), "--dtype", self.dtype]
        arguments += ["--quantization", self.quantization, "--kv-cache-dtype", self.kv_cache_dtype]
        arguments += ["--tensor-parallel", str(self.tensor_parallel)]
        arguments += ["--max-running-requests", str(self.max_running_requests)]
        arguments += ["--prefix-caching" if self.prefix_caching else "--no-prefix-caching"]
        arguments += ["--chunked-prefill-tokens", str(self.chunked_prefill_tokens)]
        if self.speculative != "none":
            arguments += ["--speculative", self.speculative, "--speculative-tokens", str(self.speculative_tokens)]
        if self.draft_model is not None:
            arguments += ["--draft-model", str(self.draft_model)]
        for adapter in self.lora:
            arguments += ["--lora", str(adapter.path)]
        if self.max_model_len is not None:
            arguments += ["--max-model-len", str(self.max_model_len)]
        if self.kv_cache_memory is not None:
            arguments += ["--kv-cache-memory", str(self.kv_cache_memory)]
        return arguments


def parse_settings(arguments: Sequence[str]) -> Settings:
    """Settings of a command line without the program's name; raises SettingsError, and exits only for `--help`."""
    found = _parser().parse_args(list(arguments))
    model: Path = found.model
    if found.port == found.admin_port:
        raise SettingsError(f"--admin-port {found.admin_port}: is --port too; give the two listeners different ports")
    if found.speculative == "draft" and found.draft_model is None:
        raise SettingsError("--speculative draft: needs a smaller model; name it by --draft-model PATH")
    if found.speculative != "draft" and found.draft_model is not None:
        raise SettingsError(
            f"--draft-model {found.draft_model}: is only used by --speculative draft; set that, or drop it"
        )
    served_name: str = found.served_name or model.stem
    names = [served_name, *(adapter.name for adapter in found.lora)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SettingsError(f"--lora {twice}: is the name of another adapter or of the model; give each its own")
    return Settings(**{**vars(found), "served_name": served_name, "lora": tuple(found.lora)})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message.removeprefix('argument ')}; see python3 -m tidegate_engine --help")


def _parser() -> _Parser:
    parser = _Parser(prog="python3 -m tidegate_engine", description="Serve one language model.", allow_abbrev=False)
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="PATH", help="a GGUF file, or a Hugging Face folder")
    add("--served-name", type=_name, metavar="NAME", help="the name clients ask for (default: the file's name)")
    add("--max-model-len", type=_positive, metavar="N", help="longest prompt and answer together, in tokens")
    add("--dtype", choices=DTYPES, default="auto", help="numbers the model computes in")
    add("--quantization", choices=QUANTIZATIONS, default="none", help="what weights are quantized to when loaded")
    add("--tensor-parallel", type=_positive, default=1, metavar="N", help="processes that share one model")
    add("--max-running-requests", type=_positive, default=32, metavar="N", help="answers computed at a time")
    add("--max-queued-requests", type=_natural, default=256, metavar="N", help="answers that may wait; more get 429")
    add("--kv-cache-memory", type=_size, metavar="BYTES", help="memory for keys and values, as 512Mi or a number")
    add("--kv-cache-dtype", choices=KV_CACHE_DTYPES, default="auto", help="what keys and values are kept in")
    add("--prefix-caching", action=argparse.BooleanOptionalAction, default=True, help="reuse equal prompt beginnings")
    add("--chunked-prefill-tokens", type=_positive, default=512, metavar="N", help="a step's token budget")
    add("--speculative", choices=SPECULATIVE, default="none", help="where guesses of next tokens come from")
    add("--speculative-tokens", type=_guesses, default=4, metavar="N", help="most guesses a request and step")
    add("--draft-model", type=Path, metavar="PATH", help="a smaller model with the same tokens, for guesses")
    add("--lora", type=_adapter, action="append", default=[], metavar="NAME=PATH", help="an adapter; may be repeated")
    add("--host", default="0.0.0.0", help="address to listen on")
    add("--port", type=_port, default=8000, help="port of /v1")
    add("--admin-port", type=_port, default=9000, help="port of health, load, metrics and drain")
    add("--drain-timeout", type=_seconds, default=300.0, metavar="SECONDS", help="how long running requests may finish")
    add("--endpoint-lag", type=_seconds, default=5.0, metavar="SECONDS", help="how long to go on accepting at SIGTERM")
    add("--max-body-size", type=_size, default=8 * 2**20, metavar="BYTES", help="larger requests get 413")
    add("--termination-log", type=Path, default=TERMINATION_LOG, metavar="PATH", help="told why it ended")
    return parser


def _name(text: str) -> str:
    if not text.strip() or any(ord(character) < 32 for character in text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name; give one of printable characters")
    return text


def _adapter(text: str) -> Adapter:
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is no adapter; write it as NAME=PATH, PATH a PEFT folder")
    return Adapter(_name(name), Path(path))


def _positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _natural(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _guesses(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,2}", text) or not 0 < int(text) <= MOST_GUESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of guesses from 1 to {MOST_GUESSES}")
    return int(text)


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of 0 or more")
    return float(text)


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(k|M|G|T|Ki|Mi|Gi|Ti|)", text)
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size of 1 byte or more; write it as 536870912 or 512Mi")
    return size
