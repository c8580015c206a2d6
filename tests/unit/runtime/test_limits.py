"""CPU and memory limits, from control groups as containers see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidegate_engine.runtime.limits import machine_limits

MEBIBYTE = 2**20
MEMINFO = f"MemTotal: 8388608 kB\nMemAvailable: {4096 * 1024} kB\n"


def tree(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "cgroup").mkdir(exist_ok=True)
    return root / "cgroup", root / "proc"


@pytest.mark.parametrize(
    ("files", "cores", "threads"),
    [
        pytest.param({}, 8, 8, id="no quota: all cores"),
        pytest.param({"cgroup/cpu.max": "max 100000\n"}, 8, 8, id="v2 without a limit: all cores"),
        pytest.param({"cgroup/cpu.max": "50000 100000\n"}, 0.5, 1, id="v2, half a core: one thread"),
        pytest.param({"cgroup/cpu.max": "250000 100000\n"}, 2.5, 2, id="v2, two and a half cores: two threads"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/pod/engine\n",
                "cgroup/pod/cpu.max": "100000 100000\n",
                "cgroup/pod/engine/cpu.max": "max\n",
            },
            1,
            1,
            id="v2, the limit is on the pod and not on the container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/kubepods/x\n0::/\n",
                "cgroup/cpu/cpu.cfs_quota_us": "150000\n",
                "cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            1.5,
            1,
            id="v1, where the host's path is not visible in the container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
            8,
            id="v1 without a limit",
        ),
    ],
)
def test_cores(tmp_path: Path, files: dict[str, str], cores: float, threads: int) -> None:
    cgroups, proc = tree(tmp_path, files)
    limits = machine_limits(cgroups, proc, cores=8)
    assert (limits.cores, limits.threads) == (cores, threads)


@pytest.mark.parametrize(
    ("files", "left"),
    [
        pytest.param({}, 4096, id="no limit: what the machine has available"),
        pytest.param({"cgroup/memory.max": "max\n", "cgroup/memory.current": "5\n"}, 4096, id="v2 without a limit"),
        pytest.param(
            {"cgroup/memory.max": f"{1024 * MEBIBYTE}\n", "cgroup/memory.current": f"{300 * MEBIBYTE}\n"},
            724,
            id="v2: the limit less what is used",
        ),
        pytest.param(
            {
                "cgroup/memory.max": f"{1024 * MEBIBYTE}\n",
                "cgroup/memory.current": f"{300 * MEBIBYTE}\n",
                "cgroup/memory.stat": f"anon 7\ninactive_file {100 * MEBIBYTE}\n",
            },
            824,
            id="v2: cached file pages can be given up",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "7:memory:/host/path\n",
                "cgroup/memory/memory.limit_in_bytes": f"{512 * MEBIBYTE}\n",
                "cgroup/memory/memory.usage_in_bytes": f"{600 * MEBIBYTE}\n",
            },
            0,
            id="v1, over the limit: nothing",
        ),
        pytest.param(
            {
                "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cgroup/memory/memory.usage_in_bytes": f"{600 * MEBIBYTE}\n",
            },
            4096,
            id="v1 without a limit is a very large number",
        ),
    ],
)
def test_memory_left(tmp_path: Path, files: dict[str, str], left: int) -> None:
    cgroups, proc = tree(tmp_path, files)
    assert machine_limits(cgroups, proc, cores=1).memory_left == left * MEBIBYTE


def test_this_machine_can_be_asked() -> None:
    limits = machine_limits()
    assert limits.threads >= 1
    assert limits.memory_left > 0
