"""The yardstick's settings: the only module of it that reads flags and the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.plan import DECODES, PROMPT

SPEED = (PROMPT.key, *(figure.key for figure in DECODES))
KEYS = (*SPEED, "mixed", "start", "perplexity")


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What to measure, with what, and where to leave it."""

    model: Path
    only: tuple[str, ...]
    rounds: int
    threads: int
    requests: int
    """of mixed traffic"""
    out: Path
    cache: Path
    llama_cpp_python: Path | None
    """the Python of an environment with llama-cpp-python; None: the cache's, built where it is not there"""


def parse_settings(arguments: Sequence[str]) -> BenchSettings:
    """Settings of a command line; a wrong one exits with code 2, as argparse does."""
    cache = _cache()
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    default = cache / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    add("--model", type=_file, default=default, metavar="GGUF", help="a file that all engines can load")
    add("--only", type=_keys, default=KEYS, metavar="KEY,...", help=f"some of {', '.join(KEYS)}")
    add("--rounds", type=_positive, default=5, metavar="N", help="turns that the two take in each generation")
    add("--requests", type=_positive, default=200, metavar="N", help="of mixed traffic")
    add("--threads", type=_positive, default=len(os.sched_getaffinity(0)), metavar="N", help="of each engine")
    add("--out", type=Path, default=Path("build/bench/engine.json"), metavar="PATH", help="where the JSON goes")
    add("--llama-cpp-python", type=_file, metavar="PATH", help="the Python that has llama-cpp-python")
    found = parser.parse_args(list(arguments))
    return BenchSettings(cache=cache, **vars(found))


def _cache() -> Path:
    named = os.environ.get("TIDEGATE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "tidegate"


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such file; `make setup` fetches the model")
    return path


def _keys(text: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [key for key in wanted if key not in KEYS]
    if unknown or not wanted:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is no figure; some of {', '.join(KEYS)}")
    return tuple(key for key in KEYS if key in wanted)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)
