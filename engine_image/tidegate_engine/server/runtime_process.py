"""The runtime's process as its parent sees it: started first, watched, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

RUNTIME = (sys.executable, "-m", "tidegate_engine.runtime")


@dataclass(frozen=True, slots=True)
class RuntimeProcess:
    """A child in a process group of its own, with the server's end of the link."""

    process: subprocess.Popen[bytes]
    link: socket.socket

    @classmethod
    def start(cls, arguments: Sequence[str], command: Sequence[str] = RUNTIME) -> RuntimeProcess:
        """Start it; `arguments` come after the link's file descriptor."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            line = [*command, "--socket-fd", str(descriptor), *arguments]
            process = subprocess.Popen(line, pass_fds=[descriptor], stdin=subprocess.DEVNULL, process_group=0)
        return cls(process, ours)

    async def ended(self) -> int:
        """Wait for the child's end; its exit code, negative for a signal."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        try:
            descriptor = os.pidfd_open(self.process.pid)
        except ProcessLookupError:
            return self.process.wait()
        try:
            loop.add_reader(descriptor, over.set)
            await over.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self.process.wait()

    def wait(self, timeout: float) -> None:
        """Wait for the child's end, but not longer than `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)

    def kill(self) -> None:
        """End the child and all its children now."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def manner_of_end(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"{name} (out of memory, perhaps)" if -code == signal.SIGKILL else name
    return f"exit code {code}"
