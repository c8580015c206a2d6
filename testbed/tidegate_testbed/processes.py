"""Starting and ending the testbed's processes. Each carries a mark in its environment, so none needs a pid file.

A crash between a start and a note of it cannot lose a process, and a number that another process has by now cannot
end that one: what carries the mark is ours, nothing else is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_testbed.instance import Instance, TestbedError

MARK = "TIDEGATE_TESTBED"
"""Holds the state folder in all that a testbed starts. A user's own variable of that name holds an instance's name,
never a path, so it marks nothing."""
COMPONENT = "TIDEGATE_TESTBED_COMPONENT"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class Owned:
    """A process that is ours: a component, a container's shim, or something inside one of the testbed's pods."""

    pid: int
    component: str
    memory_kib: int


@dataclass(frozen=True, slots=True)
class Started:
    """A component that this program has just started."""

    component: str
    pid: int
    log: Path

    def has_ended(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:  # it was waited for before
            return True


def inside(instance: Instance) -> list[str]:
    """The command prefix that enters the network namespace; `ip netns exec` would hide the cgroup mounts."""
    return ["nsenter", f"--net=/run/netns/{instance.netns}", "--"]


def start(instance: Instance, component: str, command: Sequence[str | Path], path: str) -> Started:
    """Start a component in a session of its own, its output in the log folder."""
    log = instance.state / "log" / f"{component}.log"
    # Nothing beyond the namespace can be reached, a proxy least of all.
    environment = {k: v for k, v in os.environ.items() if k.upper() not in PROXIES}
    environment |= {MARK: str(instance.state), COMPONENT: component, "PATH": f"{path}:{os.environ['PATH']}"}
    arguments = [str(a) for a in command]
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not subprocess.Popen, which warns that what it started still runs: that is the point here.
    pid = os.posix_spawnp(
        arguments[0], arguments, environment, setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, writing, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )  # fmt: skip
    return Started(component, pid, log)


def owned(instance: Instance) -> list[Owned]:
    """Every process of this testbed that is alive now."""
    found = (_look_at(instance, int(e.name)) for e in Path("/proc").iterdir() if e.name.isdigit())
    return [process for process in found if process]


def _look_at(instance: Instance, pid: int) -> Owned | None:
    entry = Path("/proc", str(pid))
    try:
        environment = (entry / "environ").read_bytes().split(b"\0")
        if f"{MARK}={instance.state}".encode() in environment:
            prefix = f"{COMPONENT}=".encode()
            component = next((e[len(prefix) :].decode() for e in environment if e.startswith(prefix)), "?")
            if (entry / "comm").read_text().startswith("containerd-shim"):
                component = "shim"
        elif in_cgroup(instance, (entry / "cgroup").read_text()):
            component = "pod"
        else:
            return None
        status = (entry / "status").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None  # it ended while we looked
    if "State:\tZ" in status:
        return None
    memory = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")), "0")
    return Owned(pid, component, int(memory))


def in_cgroup(instance: Instance, memberships: str) -> bool:
    """Whether a process with these lines of /proc/PID/cgroup is in a pod of a testbed that has the name now."""
    return instance.claimant() == str(instance.state) and any(
        line.split(":", 2)[2].startswith(f"/{instance.cgroup}/") for line in memberships.splitlines()
    )


def _signal(instance: Instance, process: Owned, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # Looked at again with the handle open: the number cannot pass to another process from here on.
        if _look_at(instance, process.pid):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def end(instance: Instance, components: Iterable[str] | None = None, grace: float = 5.0) -> None:
    """End these components, or all: TERM, and KILL for what stays. Raises TestbedError if one outlives that too."""
    names = None if components is None else set(components)

    def left() -> list[Owned]:
        return [p for p in owned(instance) if names is None or p.component in names]

    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left():
            _signal(instance, process, number)
        try:
            wait_for("the end of processes", lambda: not left(), grace)
            return
        except TestbedError:
            continue
    raise TestbedError(f"these processes do not end: {left()}")


def wait_for(what: str, condition: Callable[[], bool], seconds: float, needs: Sequence[Started] = ()) -> None:
    """Look every 0.1 s until the condition holds.

    Raises TestbedError, with a log's last lines, after the deadline or as soon as a component that it needs has ended.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        ended = next((n for n in needs if n.has_ended()), None)
        if ended:
            raise TestbedError(f"{ended.component} ended at its start:\n{_tail(ended.log)}")
        if time.monotonic() > deadline:
            last = f":\n{_tail(needs[0].log)}" if needs else ""
            raise TestbedError(f"{what} took longer than {seconds:.0f} s{last}")
        time.sleep(0.1)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log.exists() else ""
