"""A long command with its output in a file, and on a terminal one moving line meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidegate_testbed.instance import TestbedError


def run_watched(
    title: str,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    current: Callable[[str], str] = lambda _: "",
) -> float:
    """Run the command and return its seconds; `current` says from the log's end what it is at.

    Raises TestbedError with the log's last lines where it fails; an interrupt ends the command too.
    """
    terminal, began = sys.stdout.isatty(), time.monotonic()
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        while running.poll() is None:
            try:
                running.wait(timeout=1)
            except subprocess.TimeoutExpired:
                if terminal:
                    line = f"  {title} {time.monotonic() - began:4.0f} s  {current(_end(log))}"
                    print(f"\r{line[:100]:100}", end="", flush=True)
    finally:
        if running.poll() is None:
            running.terminate()
            running.wait()
        if terminal:
            print(f"\r{'':100}\r", end="", flush=True)
    if running.returncode != 0:
        tail = "\n".join(_end(log).splitlines()[-15:])
        raise TestbedError(f"{title}: failed (its whole output: {log})\n{tail}")
    return time.monotonic() - began


def _end(log: Path) -> str:
    return log.read_bytes()[-8000:].decode(errors="replace")
