"""What is done to the testbed: the service applied, traffic sent from inside its network, its pods looked at."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException
from rich.console import Console
from urllib3.exceptions import HTTPError

from tidegate_lab.calibrate.measured import read_measured
from tidegate_lab.cluster import Cluster, Name
from tidegate_lab.demo import objects
from tidegate_lab.demo.places import Testbed, apply
from tidegate_lab.demo.shell import Shell, StepFailed
from tidegate_lab.demo.story import install, wait_ready
from tidegate_lab.load.report import Report
from tidegate_lab.real_bench.pods import Glance
from tidegate_lab.real_bench.service import NAME
from tidegate_lab.simulate.fixed import Served
from tidegate_lab.traffic.command import lines
from tidegate_lab.traffic.trace import Trace

ROOT = Path(__file__).parents[3]
SERVICE = Name(objects.NAMESPACE, NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the client saw of one load."""

    report: Report
    served: Served
    """The completed requests."""
    began_at: float
    """`time.time` when its clock was 0."""


class Bed:
    """The testbed that TIDEGATE_TESTBED names, up, with this tree's operator and engine in it."""

    def __init__(self) -> None:
        self.shell = Shell(Console(soft_wrap=False, width=160), ROOT)
        self._testbed = Testbed(self.shell, ROOT)
        self._kubectl = [*self._testbed.kubectl, "-n", objects.NAMESPACE]

    def prepare(self) -> None:
        """Start it, build and load images, install the chart, bring the model."""
        self._testbed.prepare()
        install(self.shell, self._testbed)
        apply(self.shell, self._testbed, [objects.namespace()])
        self._testbed.put_model()

    @property
    def images(self) -> tuple[str, str]:
        """Operator and engine, by tags that follow the sources."""
        return self._testbed.images.operator, self._testbed.images.engine

    @property
    def cgroup(self) -> str:
        """Of all its pods, below the root."""
        return self._testbed.cgroup

    def serve(self, manifest: objects.Manifest) -> None:
        """The service, nothing of it learned by the operator yet; returns when its first pod is ready."""
        self.shell.read([*self._kubectl, "apply", "-f", "-"], json.dumps(manifest))
        wait_ready(self.shell, self._cluster, SERVICE)

    def end(self) -> None:
        """No service, and no pod of it."""
        chosen = f"tidegate.dev/service={NAME}"
        self.shell.read([*self._kubectl, "delete", "infsvc", NAME, "--ignore-not-found", "--wait"])
        self.shell.read([*self._kubectl, "wait", "--for=delete", "pod", "-l", chosen, "--timeout=180s"])

    def cache_tokens(self) -> int:
        """What a replica's cache holds, as the replica says."""
        load = self._cluster.loads(SERVICE)[0]
        if load is None:
            raise StepFailed(f"a pod of {SERVICE} does not answer GET /load")
        return load.kv_blocks.total * load.kv_blocks.size

    def glances(self) -> list[Glance]:
        """All pods of the service; none where the API server does not answer."""
        try:
            return [_glance(pod) for pod in self._cluster.pods(SERVICE)]
        except (ApiException, HTTPError):
            return []

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._testbed.kubeconfig)

    def send(self, samples: Path, flags: Mapping[str, float], trace: Trace | None = None) -> Replay:
        """One load from inside the network, a connection a request; its completed requests are left in `samples`.

        Raises StepFailed where it reports nothing.
        """
        with tempfile.TemporaryDirectory(prefix="tidegate-real-") as folder:
            requests = Path(folder, "trace.jsonl")
            command: list[str] = [str(ROOT / "testbed/tidegate-testbed"), "exec", "--", sys.executable]
            command += ["-m", "tidegate_lab.load", "--url", f"http://{NAME}.{objects.NAMESPACE}", "--model", NAME]
            command += ["--samples", str(samples.absolute()), "--output", "json", "--progress", "--timeout", "300"]
            command += [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
            if trace is not None:
                requests.write_text(lines(trace))
                command += ["--trace", str(requests)]
            began_at, said = _followed(command)
            if not said.startswith("{"):
                raise StepFailed(f"the load gave no report; its last words: {said}")
            return Replay(report=Report.from_json(json.loads(said)), served=read_measured(samples), began_at=began_at)


def _followed(command: list[str]) -> tuple[float, str]:
    """Run it; when its clock was 0, by its first progress, and the last line it printed."""
    began_at, last = time.time(), ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        first = True
        for line in process.stdout or ():
            if line.startswith('{"progress"'):
                if first:
                    began_at, first = time.time() - json.loads(line)["progress"]["at_s"], False
            elif line.strip():
                last = line.strip()
    return began_at, last


def _glance(pod: Any) -> Glance:
    ready = next((c for c in pod.status.conditions or () if c.type == "Ready" and c.status == "True"), None)
    return Glance(
        uid=pod.metadata.uid,
        created_at=pod.metadata.creation_timestamp.timestamp(),
        ready=ready is not None,
        ready_since=ready.last_transition_time.timestamp() if ready else None,
    )
