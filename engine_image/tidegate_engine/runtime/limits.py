"""What this process may use of the machine: its control group's CPU quota and memory, cgroup v1 or v2.

A container sees its own group at the top of the mount or at the path in /proc/self/cgroup, depending on the runtime;
a limit may also sit on a group above. So every readable group from the path upwards is asked, and the least counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """CPU limit in cores, and bytes of memory that could still be taken without being killed."""

    cores: float
    memory_left: int

    @property
    def threads(self) -> int:
        """Whole threads that can run at once; more than the quota only wait for each other."""
        return max(1, int(self.cores))


def machine_limits(cgroups: Path = CGROUPS, proc: Path = PROC, cores: int | None = None) -> MachineLimits:
    """The limits in force now; `cores` are those this process may be scheduled on."""
    groups = _own_groups(proc)
    quota = min(_cpu_quotas(cgroups, groups), default=float("inf"))
    memory = min(_memory_left(cgroups, groups), default=_available(proc))
    return MachineLimits(
        cores=min(quota, cores if cores is not None else len(os.sched_getaffinity(0))),
        memory_left=max(0, min(memory, _available(proc))),
    )


def _own_groups(proc: Path) -> dict[str, str]:
    """By controller (the empty name is v2), this process's path."""
    groups: dict[str, str] = {}
    for line in (_read(proc / "self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _upwards(top: Path, path: str) -> Iterator[Path]:
    """The group at `path` under a mount, and those above it, as far as they are visible here."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        group = top.joinpath(*parts[:length])
        if group.is_dir():
            yield group


def _v2(cgroups: Path, groups: dict[str, str]) -> Iterator[Path]:
    for top in (cgroups, cgroups / "unified"):
        yield from _upwards(top, groups.get("", "/"))


def _v1(cgroups: Path, groups: dict[str, str], controller: str) -> Iterator[Path]:
    yield from _upwards(cgroups / controller, groups.get(controller, "/"))


def _cpu_quotas(cgroups: Path, groups: dict[str, str]) -> Iterator[float]:
    for group in _v2(cgroups, groups):
        quota, _, period = (_read(group / "cpu.max") or "max").partition(" ")
        if quota != "max":
            yield int(quota) / int(period)
    for group in _v1(cgroups, groups, "cpu"):
        quota = _read(group / "cpu.cfs_quota_us") or "-1"
        if int(quota) > 0:
            yield int(quota) / int(_read(group / "cpu.cfs_period_us") or 100_000)


def _memory_left(cgroups: Path, groups: dict[str, str]) -> Iterator[int]:
    for group in _v2(cgroups, groups):
        limit, used = _read(group / "memory.max"), _read(group / "memory.current")
        if limit is not None and limit != "max" and used is not None:
            yield int(limit) - int(used) + _droppable(group, "inactive_file")
    for group in _v1(cgroups, groups, "memory"):
        limit, used = _read(group / "memory.limit_in_bytes"), _read(group / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            yield int(limit) - int(used) + _droppable(group, "total_inactive_file")


def _droppable(group: Path, name: str) -> int:
    """File pages that count as used and are given up under pressure: the model file just read is among them."""
    for line in (_read(group / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _available(proc: Path) -> int:
    for line in (_read(proc / "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
