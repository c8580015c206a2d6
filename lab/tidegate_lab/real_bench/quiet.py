"""How quiet the machine was, and the pods' share of it: two cores with other programs on them are no cluster."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
FIRST = {"cpu.shares": "262144", "cpu.weight": "10000"}
"""The most that either version of cgroups gives: what pods are promised by their limits they get at once."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Of all processors since the machine's start, in hundredths of a second."""

    total: int
    stolen: int

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Ticks:
        """The first line: user, nice, system, idle, iowait, irq, softirq, steal, and guests' again."""
        fields = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return cls(sum(fields), fields[7])

    def stolen_since(self, before: Ticks) -> float:
        """Share of the time since that the host gave to other machines."""
        passed = self.total - before.total
        return (self.stolen - before.stolen) / passed if passed else 0.0


def put_pods_first(cgroup: str, root: Path = CGROUPS) -> None:
    """Pods come before what else runs on this machine, where that can be told to the kernel; else nothing is done."""
    for name, value in FIRST.items():
        for place in (root / cgroup / name, root / "cpu" / cgroup / name):
            if place.exists():
                with contextlib.suppress(OSError):
                    place.write_text(value)


def put_us_first() -> None:
    """The client, and the testbed where this starts it, too: they are what measures."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
