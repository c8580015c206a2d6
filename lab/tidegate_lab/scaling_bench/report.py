"""The file that a run leaves: rows, answers, and what they were made with."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tidegate_lab.scaling_bench.answers import Answer
from tidegate_lab.scaling_bench.cases import CASES
from tidegate_lab.scaling_bench.contestants import CONTESTANTS
from tidegate_lab.scaling_bench.rows import Row

SEED = 1


def commit() -> str:
    """The commit that is checked out, with `+` where files differ from it; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.stdout.strip()


def write(path: Path, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
    """One JSON object: `rows` first of all, one for each policy, setting, trace and cold start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "commit": commit(),
        "seed": SEED,
        "traces": {
            c.name: {"split": c.split, "what": c.what, "engine": asdict(c.engine), "targets": asdict(c.targets)}
            for c in CASES
        },
        "policies": {
            c.name: {"setting": c.setting, "values": c.values, "default": c.default} for c in CONTESTANTS.values()
        },
        "answers": [{"claim": a.claim, "holds": a.holds, "figures": a.figures} for a in answers],
        "rows": [asdict(r) for r in rows],
    }
    path.write_text(json.dumps(body, indent=1) + "\n")
