"""The two processes, each on a core of its own, and what the kernel and their own figures tell of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tidegate_bench_operator.histogram import Metrics

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class NotMeasured(Exception):
    """A process ended or never got ready; the message says which, and where its log is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs: one core, and with which priority (below 0 needs root)."""

    core: int
    nice: int

    @property
    def command(self) -> tuple[str, ...]:
        return ("nice", "-n", str(self.nice), "taskset", "-c", str(self.core))


@dataclass(frozen=True, slots=True)
class StandIn:
    """The cluster's process."""

    process: subprocess.Popen[str]
    port: int

    def told(self) -> dict[str, Any]:
        """What it saw since it was last asked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator's process."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def metrics(self) -> Metrics:
        """Its `/metrics`; raises NotMeasured where it has ended."""
        if self.process.poll() is not None:
            raise NotMeasured(f"the operator ended with code {self.process.returncode}; its log: {self.log}")
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def cpu_s(self) -> float:
        """Processor seconds it has taken so far, its own and the kernel's for it."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_mib(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def open_files(self) -> int:
        """File descriptors, one for each kept connection and a few more."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def wait(self, seconds: float) -> None:
        """Until it serves `/metrics`."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.metrics()
            except (urllib.error.URLError, ConnectionError) as error:
                if time.monotonic() > until:
                    raise NotMeasured(f"the operator serves no /metrics ({error}); its log: {self.log}") from error
                time.sleep(0.2)
            else:
                return


@contextmanager
def stand_in(place: Place, arguments: Sequence[str]) -> Iterator[StandIn]:
    """Run the cluster's process."""
    command = [*place.command, sys.executable, "-m", "tidegate_bench_operator.stand_in", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        hello = process.stdout.readline()
        if not hello:
            raise NotMeasured(f"the stand-in ended with code {process.wait(10)}")
        yield StandIn(process, json.loads(hello)["port"])
    finally:
        _end(process)


@contextmanager
def operator(place: Place, api_port: int, port: int, folder: Path, arguments: Sequence[str]) -> Iterator[Operator]:
    """Run the operator's process."""
    config = folder / "kubeconfig"
    config.write_text(yaml.safe_dump(kubeconfig(api_port)))
    command = [
        *(*place.command, sys.executable, "-m", "tidegate_operator"),
        *("--engine-image", "engine:1", "--identity", "bench", "--metrics-port", str(port), *arguments),
    ]
    log = folder / "operator.log"
    with log.open("wb") as out:
        process = _start(command, out, os.environ | {"KUBECONFIG": str(config)})
        try:
            yield Operator(process, port, log)
        finally:
            _end(process)


def _start(command: Sequence[str], out: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=out, stderr=out, env=environment)


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def kubeconfig(port: int) -> dict[str, Any]:
    """How the operator finds the stand-in's API server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
