"""Starting and ending the testbed's processes. Each carries a mark in its environment, so none needs a pid file.

A crash between a start and a note of it cannot lose a process: what carries the mark is ours, nothing else is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed.instance import Instance, TestbedError

MARK = "TIDEGATE_TESTBED"
COMPONENT = "TIDEGATE_TESTBED_COMPONENT"


@dataclass(frozen=True, slots=True)
class Owned:
    """A process that is ours: a component, a container's shim, or something inside one of the testbed's pods."""

    pid: int
    component: str
    memory_kib: int


def inside(instance: Instance) -> list[str]:
    """The command prefix that enters the network namespace; `ip netns exec` would hide the cgroup mounts."""
    return ["nsenter", f"--net=/run/netns/{instance.netns}", "--"]


def start(instance: Instance, component: str, command: Sequence[str | Path], path: str, inside_netns: bool = True) -> int:
    """Start a component in a session of its own, its output in the log folder; returns its process id."""
    logs = instance.state / "log"
    logs.mkdir(parents=True, exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HTTP_PROXY", "HTTPS_PROXY"))}
    environment |= {MARK: str(instance.state), COMPONENT: component, "PATH": f"{path}:{os.environ['PATH']}"}
    with (logs / f"{component}.log").open("ab") as output:
        running = subprocess.Popen(
            [*(inside(instance) if inside_netns else []), *map(str, command)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    return running.pid


def owned(instance: Instance) -> list[Owned]:
    """Every process of this testbed that is alive now."""
    found = []
    mark = f"{MARK}={instance.state}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            if mark in environment:
                prefix = f"{COMPONENT}=".encode()
                component = next((e[len(prefix) :].decode() for e in environment if e.startswith(prefix)), "?")
                if (entry / "comm").read_text().startswith("containerd-shim"):
                    component = "shim"
            elif f":/{instance.cgroup}/" in (entry / "cgroup").read_text():
                component = "pod"
            else:
                continue
            status = (entry / "status").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked
        if "State:\tZ" in status:
            continue
        memory = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")), "0")
        found.append(Owned(int(entry.name), component, int(memory)))
    return found


def end(instance: Instance, components: Iterable[str], grace: float = 5.0) -> None:
    """End these components: TERM, and KILL for what has not gone after the grace. Raises TestbedError if one stays."""
    names = set(components)

    def left() -> list[Owned]:
        return [p for p in owned(instance) if p.component in names]

    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left():
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
        try:
            wait_for("end", lambda: not left(), grace)
            return
        except TestbedError:
            continue
    raise TestbedError(f"these processes do not end: {left()}")


def wait_for(what: str, condition: Callable[[], bool], seconds: float, log: Path | None = None) -> None:
    """Look every 0.1 s until the condition holds. Raises TestbedError with the log's last lines after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log and log.exists() else ""
            raise TestbedError(f"{what} took longer than {seconds:.0f} s{': ' + tail if tail else ''}")
        time.sleep(0.1)
