"""A worker's loop: tasks from stdin, timings to stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidegate_bench.messages import Advance, Close, Failed, Hello, Open, Prompt, Reply, Task, Timing, decode, encode


class Generator(Protocol):
    """An engine, as the yardstick uses it. What the calls return are tokens computed."""

    def hello(self) -> Hello:
        """What this is."""
        ...

    def prompt(self, ids: list[int]) -> int:
        """See Prompt."""
        ...

    def open(self, prompts: list[list[int]], new_tokens: int) -> int:
        """See Open."""
        ...

    def advance(self, steps: int) -> int:
        """See Advance."""
        ...

    def close(self) -> None:
        """See Close."""
        ...


def serve(load: Callable[[], Generator]) -> None:
    """Load, say Hello, do what is asked until stdin ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(reply: Reply) -> None:
        answers.write(encode(reply) + "\n")

    try:
        engine = load()
        answer(engine.hello())
        for line in sys.stdin:
            answer(_timed(engine, decode(line)))
    except Exception as error:
        answer(Failed(f"{type(error).__name__}: {error}"))
        raise


def _timed(engine: Generator, task: Task) -> Timing:
    wall, cpu, machine = time.perf_counter(), time.process_time(), _busy()
    tokens = _do(engine, task)
    wall, cpu, machine = time.perf_counter() - wall, time.process_time() - cpu, _busy() - machine
    return Timing(tokens, wall, cpu, max(0.0, machine - cpu))


def _busy() -> float:
    """Seconds that this machine's processors have worked, or were taken away by the host, since it was started."""
    user, nice, system, _, _, interrupts, soft, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _do(engine: Generator, task: Task) -> int:
    match task:
        case Prompt(ids):
            return engine.prompt(ids)
        case Open(prompts, new_tokens):
            return engine.open(prompts, new_tokens)
        case Advance(steps):
            return engine.advance(steps)
        case Close():
            engine.close()
            return 0
