"""The environment of llama-cpp-python: built from its source for this processor, and kept in the cache.

A build holds for the instruction sets it was compiled for, so they are in its name: one of another machine would be a
slower peer. pip's own cache of built wheels knows nothing of that, and is not used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

VERSION = "0.3.36"


class CannotBuild(RuntimeError):
    """llama.cpp cannot be had on this machine; the message says what is missing."""


def environment(cache: Path, instruction_sets: Sequence[str]) -> Path:
    """The folder of the environment, wherever it is or will be."""
    digest = hashlib.sha256(" ".join(instruction_sets).encode()).hexdigest()[:8]
    return cache / f"llama-cpp-{VERSION}-{digest}"


def ready(folder: Path) -> Path:
    """The environment's Python; builds it where it is not there, in about six minutes of two cores."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    for program in ("cc", "c++", "cmake"):
        if shutil.which(program) is None:
            raise CannotBuild(f"{program} is not on PATH: llama-cpp-python {VERSION} is built from its source")
    print(f"building llama-cpp-python {VERSION} for this processor into {folder}: some minutes", file=sys.stderr)
    part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    try:
        _run([sys.executable, "-m", "venv", str(part)])
        install = ["-m", "pip", "install", "-q", "--no-cache-dir", "--no-binary", "llama-cpp-python"]
        _run([str(part / "bin" / "python"), *install, f"llama-cpp-python=={VERSION}"])
        # A moved environment's own Python still finds its packages; only its scripts would not.
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return python


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise CannotBuild("\n".join([f"{command[0]}: building llama-cpp-python {VERSION} failed", *last]))
