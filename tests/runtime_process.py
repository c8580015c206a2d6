"""A real runtime process, and what a server does with it, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from patience import PATIENCE_S
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.link.channel import BlockingChannel
from tidegate_engine.link.messages import Abort, Failed, Outputs, Quit, Ready, Submit, ToServer

ENGINE = Path(__file__).parents[1] / "engine_image"


class RuntimeProcess:
    """Starts a runtime; a context manager that leaves none behind."""

    def __init__(self, model: Path, *flags: str) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {"PYTHONPATH": str(ENGINE)}
        command = [sys.executable, "-m", "tidegate_engine.runtime", "--socket-fd", str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                [*command, "--model", str(model), *flags], pass_fds=(theirs.fileno(),), env=environment
            )
        self.channel: BlockingChannel[ToServer] = BlockingChannel(ours, ToServer)
        self._messages: list[ToServer] = []

    def __enter__(self) -> RuntimeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def hear(self, seconds: float = PATIENCE_S) -> ToServer:
        """The next message, within a deadline."""
        deadline = time.monotonic() + seconds
        while not self._messages:
            left = deadline - time.monotonic()
            if left <= 0 or self.channel.closed:
                raise AssertionError(f"nothing more was said (closed: {self.channel.closed}, waited {seconds} s)")
            self._messages += self.channel.poll(left)
        return self._messages.pop(0)

    def ready(self) -> Ready:
        message = self.hear(180)  # ranks that all import torch on a busy machine
        assert isinstance(message, Ready), message
        return message

    def failed(self) -> Failed:
        """The end, whatever was said before it."""
        while not isinstance(message := self.hear(), Failed):
            pass
        return message

    def outputs(self) -> Outputs:
        message = self.hear()
        assert isinstance(message, Outputs), message
        return message

    def submit(self, id: int, prompt: Sequence[int], params: SamplingParams) -> None:
        self.channel.send(Submit(id, list(prompt), params, time.monotonic()))

    def abort(self, *ids: int) -> None:
        self.channel.send(Abort(list(ids)))

    def answers(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[list[int]]:
        """All prompts at once, to their ends."""
        found: list[list[int]] = [[] for _ in prompts]
        for id, prompt in enumerate(prompts):
            self.submit(id, prompt, params)
        left = len(prompts)
        while left:
            for output in self.outputs().outputs:
                found[output.id] += output.tokens
                left -= output.finish_reason is not None
        return found

    def quit(self) -> int:
        """Say Quit; the exit code."""
        self.channel.send(Quit())
        return self.process.wait(PATIENCE_S)


def children(pid: int) -> list[int]:
    """Processes whose parent this is."""
    return [child for child, parent in _parents() if parent == pid]


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: Sequence[int], seconds: float = PATIENCE_S) -> None:
    """Fail where one of the processes is still there after the deadline."""
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still there after {seconds} s: {alive}"
        time.sleep(0.02)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
