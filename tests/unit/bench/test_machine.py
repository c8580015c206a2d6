"""What the yardstick says of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidegate_bench.machine import look


@pytest.mark.parametrize(
    ("cpuinfo", "processor", "sets"),
    [
        pytest.param("model name\t: A\nflags\t\t: fpu avx2 sse avx512_vnni\n", "A", ["avx2", "avx512_vnni"], id="x86"),
        pytest.param("Features\t: fp asimd asimddp\n", "unknown", ["asimd", "asimddp"], id="Arm names no model"),
    ],
)
def test_the_processor_and_what_kernels_choose_by(
    cpuinfo: str, processor: str, sets: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    found = look(lambda threads: 1e9 * threads, path)
    assert (found.processor, found.instruction_sets) == (processor, sets)
    assert found.read_bandwidth == 1e9 * found.cores
