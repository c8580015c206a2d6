"""Commands as steps with a title, their progress shown, several at once where they do not wait for each other."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

Command = Sequence[str | Path]


class StepFailed(Exception):
    """A command of the demo failed; the message has its last lines."""


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that run one after the other under one title."""

    title: str
    commands: Sequence[Command]
    quiet: bool = False
    """What it prints is shown only where it fails."""


class Shell:
    """Runs steps. On a terminal each has a line that moves, elsewhere each line of output is printed as it comes."""

    def __init__(self, console: Console, root: Path) -> None:
        self.console, self._root = console, root
        self._failed = threading.Event()

    def read(self, command: Command, stdin: str | None = None) -> str:
        """Run a quick command and return what it printed. Raises StepFailed with what it said."""
        done = subprocess.run(
            [str(part) for part in command], cwd=self._root, input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
            raise StepFailed(f"{_short(command)} failed:\n" + "\n".join(said))
        return done.stdout

    def run(self, *steps: Step) -> None:
        """Run the steps side by side; where one fails the others are ended, and StepFailed is raised."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[last]}"),
        )
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as progress:
            shown = [progress.add_task(step.title, total=1, last="") for step in steps]
            with ThreadPoolExecutor(len(steps)) as pool:
                running = [
                    pool.submit(self._step, step, progress, task) for step, task in zip(steps, shown, strict=True)
                ]
                errors = [error for future in running if (error := future.exception()) is not None]
        if errors:
            raise next((e for e in errors if isinstance(e, StepFailed) and str(e)), errors[0])

    def _step(self, step: Step, progress: Progress, task: TaskID) -> None:
        began = time.monotonic()
        for command in step.commands:
            self._command(step, command, progress, task)
        if not self.console.is_terminal:
            self.console.print(f"{step.title}: done in {time.monotonic() - began:.0f} s", highlight=False)
        progress.update(task, completed=1, last="")

    def _command(self, step: Step, command: Command, progress: Progress, task: TaskID) -> None:
        last: deque[str] = deque(maxlen=15)
        with subprocess.Popen(
            [str(part) for part in command],
            cwd=self._root,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            watcher = threading.Thread(target=self._end_with_others, args=(process,), daemon=True)
            watcher.start()
            for line in process.stdout or ():
                if not (text := line.strip()):
                    continue
                last.append(text)
                progress.update(task, last=text[:70])
                if not (self.console.is_terminal or step.quiet):
                    self.console.print(f"{step.title}: {text}", highlight=False, markup=False, soft_wrap=True)
        if process.returncode != 0:
            others_failed = self._failed.is_set()
            self._failed.set()
            raise StepFailed("" if others_failed else f"{_short(command)} failed:\n" + "\n".join(last))

    def _end_with_others(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            if self._failed.wait(0.5):
                process.terminate()
                return


def _short(command: Command) -> str:
    words = " ".join(Path(str(part)).name if str(part).startswith("/") else str(part) for part in command)
    return words if len(words) < 100 else words[:97] + "..."
