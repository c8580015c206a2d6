"""An engine process on free loopback ports, for tests; never left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
NAME = "tested"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(question: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not question():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.01)


def streamed_text(body: str) -> str:
    """The text of all events of a streamed completion.

    Events are not to be counted: a server that is late sends two tokens in one, and so does half a character.
    """
    events = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in event["choices"])


class EngineProcess:
    """`python -m tidegate_engine`, or with `fake` the same server before a scripted runtime."""

    def __init__(self, model: Path, *flags: str, fake: Sequence[str] | None = None, lag: float = 0.0) -> None:
        self.port, self.admin_port = free_port(), free_port()
        program = ["-m", "tidegate_engine"]
        if fake is not None:
            program = [str(Path(__file__).parent / "fake_runtime.py"), *fake, "--"]
        self.command = [sys.executable, *program, "--model", str(model), "--served-name", NAME, "--host", "127.0.0.1"]
        self.command += ["--port", str(self.port), "--admin-port", str(self.admin_port), "--endpoint-lag", str(lag)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "engine_image"), "OMP_NUM_THREADS": "2"}
        # A file, not a pipe: nobody reads while the test runs, and a full pipe would stop the engine.
        self._errors_fd = os.memfd_create("engine-stderr")
        self.process = subprocess.Popen([*self.command, *flags], stderr=self._errors_fd, env=environment)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE_S)
        self.admin = httpx.Client(base_url=f"http://127.0.0.1:{self.admin_port}", timeout=PATIENCE_S)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.admin.close()
        children = self.children()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in children:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        os.close(self._errors_fd)

    def children(self) -> list[int]:
        """Process ids of everything below the engine."""
        found, ask = [], [self.process.pid]
        while ask:
            pid = ask.pop()
            try:
                listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            below = [int(child) for child in listed.split()]
            found += below
            ask += below
        return found

    def stderr(self) -> str:
        """Everything written to stderr so far."""
        size = os.fstat(self._errors_fd).st_size
        return os.pread(self._errors_fd, size, 0).decode()

    def ready_status(self) -> int:
        """The status of /ready; 0 where nothing listens."""
        try:
            return self.admin.get("/ready").status_code
        except httpx.TransportError:
            return 0

    def wait_ready(self) -> EngineProcess:
        """Wait for the first token to be possible."""

        def ready() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"the engine ended with {self.process.returncode}: {self.stderr()}")
            return self.ready_status() == 200

        wait_until(ready, "ready")
        return self

    def wait_listening(self) -> EngineProcess:
        """Wait for the admin port to answer."""
        wait_until(lambda: self.ready_status() != 0, "listening")
        return self

    def ended(self) -> int:
        """Wait for the end of the process; its exit code."""
        return self.process.wait(PATIENCE_S)

    def generated_tokens(self) -> int:
        """Tokens made since the start."""
        return int(self.load()["counters"]["generated_tokens"])

    def load(self) -> dict[str, Any]:
        """/load as JSON."""
        found: dict[str, Any] = self.admin.get("/load").json()
        return found

    def wait_idle(self) -> None:
        """Wait until nothing runs, waits or holds a block."""

        def idle() -> bool:
            load = self.load()
            return bool(load["running"] == load["waiting"] == load["kv_blocks"]["used"] == 0)

        wait_until(idle, "idle")

    def chat(self, text: str = "Hi", **fields: Any) -> httpx.Response:
        """A chat completion of one user message."""
        body = {"model": NAME, "messages": [{"role": "user", "content": text}], **fields}
        return self.http.post("/v1/chat/completions", json=body)
