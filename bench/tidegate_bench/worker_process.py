"""A worker as the yardstick sees it: a process that is told one thing at a time."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tidegate_bench.first_in_line import start
from tidegate_bench.messages import Advance, Close, Failed, Hello, Open, Prompt, Timing, decode, encode

SOURCES = Path(__file__).parents[1]
"""What a worker needs on its path to import this package, in whichever environment it runs."""


class WorkerFailed(RuntimeError):
    """A worker ended or gave up; the message holds the last it said."""


def environment_of(path: Sequence[Path]) -> dict[str, str]:
    """The environment of a measured process that imports this package, and what is on `path`."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [SOURCES, *path]))}


def output_of(command: Sequence[str], path: Sequence[Path], said: str = "") -> str:
    """What a measured process prints that is told this, until it ends by itself. Raises WorkerFailed."""
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as errors:
        with start(command, environment_of(path), errors, pipes=True) as process:
            try:
                printed, _ = process.communicate(said)
            finally:
                process.kill()
        if process.returncode:
            errors.seek(0)
            last = errors.read().strip().splitlines()[-5:]
            raise WorkerFailed("\n".join([f"{' '.join(command[:3])} ended with code {process.returncode}", *last]))
    return printed


class Worker:
    """Started on entering; ended with its stdin on leaving."""

    def __init__(self, python: Path, module: str, arguments: Sequence[str], path: Sequence[Path] = ()) -> None:
        self._command = [str(python), "-m", module, *arguments]
        self._environment = environment_of(path)
        self.hello: Hello

    def __enter__(self) -> Worker:
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self._process = start(self._command, self._environment, self._errors, pipes=True)
        try:
            found = self._hear()
            if not isinstance(found, Hello):
                raise WorkerFailed(f"{self._command[2]} began with {type(found).__name__}")
        except BaseException:
            self._end()  # who fails on entering is not left
            raise
        self.hello = found
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is not None and stdout is not None:
            stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            stdout.close()
        self._errors.close()

    def ask(self, task: Prompt | Open | Advance | Close) -> Timing:
        """Have a task done, and wait for it. Raises WorkerFailed."""
        if self._process.stdin is None:
            raise WorkerFailed("the worker has no stdin")
        self._process.stdin.write(encode(task) + "\n")
        self._process.stdin.flush()
        found = self._hear()
        if not isinstance(found, Timing):
            raise WorkerFailed(f"{self._command[2]} answered a task with {type(found).__name__}")
        return found

    def _hear(self) -> Hello | Timing:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        found = decode(line) if line else None
        if isinstance(found, Hello | Timing):
            return found
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()[-5:]
        reason = found.reason if isinstance(found, Failed) else "it ended without a word"
        raise WorkerFailed(f"{self._command[2]}: {reason}\n" + "\n".join(said))
