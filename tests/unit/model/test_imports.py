"""What a start on a CPU pays for: importing torch, and nothing that takes as long again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from small_gguf import gguf_bytes

_SLOW = ("triton", "transformers", "torch._dynamo", "torch._inductor", "sympy", "scipy")
_PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from forward_steps import greedy
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard
print(greedy(load(Path(sys.argv[1]), Shard(), "auto", None), [[0, 1], [2]], 3))
print([name for name in %r if name in sys.modules])
"""


def test_loading_and_computing_on_a_cpu_imports_no_compiler_and_no_transformers(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(gguf_bytes())
    program = [sys.executable, "-c", _PROGRAM % (_SLOW,), str(model), *filter(None, sys.path)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[1] == "[]"
