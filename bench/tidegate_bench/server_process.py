"""Our server as a user starts it: `python -m tidegate_engine` on loopback, and a client that notes when tokens come."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx

from tidegate_bench.first_in_line import start
from tidegate_bench.plan import Traffic
from tidegate_bench.worker_process import WorkerFailed, environment_of
from tidegate_bench.workers.continuous_batching import Course

_NAME = "measured"
_START_SECONDS = 120.0


class Server:
    """Started on entering; stopped on leaving, with everything below it."""

    def __init__(self, python: str, model: Path, path: Sequence[Path]) -> None:
        ports = _free_ports(2)
        self._url = f"http://127.0.0.1:{ports[0]}"
        self._command = [python, "-m", "tidegate_engine", "--model", str(model), "--served-name", _NAME]
        self._command += ["--host", "127.0.0.1", "--port", str(ports[0]), "--admin-port", str(ports[1])]
        self._command += ["--endpoint-lag", "0"]
        self._path = path

    def __enter__(self) -> Server:
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self.began = time.monotonic()
        self._process = start(self._command, environment_of(self._path), self._errors)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: the runtime is in it
            self._process.wait()
        self._errors.close()

    def said(self) -> list[str]:
        """What it has written to stderr."""
        self._errors.seek(0)
        return self._errors.read().strip().splitlines()

    def first_token(self) -> float:
        """Seconds from the process's start to the answer of a completion of one token. Raises WorkerFailed."""
        body = {"model": _NAME, "prompt": [1, 2, 3], "max_tokens": 1, "ignore_eos": True}
        with httpx.Client(base_url=self._url, timeout=_START_SECONDS) as client:
            while time.monotonic() - self.began < _START_SECONDS:
                if self._process.poll() is not None:
                    raise WorkerFailed("\n".join(["the engine ended at its start", *self.said()[-5:]]))
                try:
                    if client.post("/v1/completions", json=body).status_code == 200:
                        return time.monotonic() - self.began
                except httpx.TransportError:
                    pass  # nobody listens yet
                time.sleep(0.01)
        raise WorkerFailed(f"the engine gave no token within {_START_SECONDS:g} s of its start")

    def serve(self, traffic: Traffic) -> Course:
        """Send requests when they arrive; when their first and last tokens came. Raises WorkerFailed."""
        return asyncio.run(self._serve(traffic))

    async def _serve(self, traffic: Traffic) -> Course:
        count = len(traffic.requests)
        course = Course([0.0] * count, [0.0] * count)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=self._url, timeout=None, limits=limits) as client:
            began = time.monotonic()
            await asyncio.gather(*(self._ask(client, traffic, number, began, course) for number in range(count)))
            course.wall = time.monotonic() - began
        return course

    async def _ask(
        self, client: httpx.AsyncClient, traffic: Traffic, number: int, began: float, course: Course
    ) -> None:
        prompt, wanted = traffic.requests[number]
        arrival = began + traffic.arrivals[number]
        await asyncio.sleep(max(0.0, arrival - time.monotonic()))
        body = {"model": _NAME, "prompt": prompt, "max_tokens": wanted, "temperature": 0, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        tail = b""
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                raise WorkerFailed(f"the engine answered {answer.status_code}: {(await answer.aread())[:300]!r}")
            async for part in answer.aiter_raw():
                if not tail:
                    course.first[number] = time.monotonic() - arrival
                tail = (tail + part)[-600:]
        course.last[number] = time.monotonic() - arrival
        if b'"completion_tokens":%d,' % wanted not in tail.replace(b" ", b"") or b"[DONE]" not in tail:
            raise WorkerFailed(f"request {number} asked for {wanted} tokens, and its answer ends {tail!r}")


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
