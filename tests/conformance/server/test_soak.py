"""Twenty seconds of `scripts/soak_engine.py`; the twenty minutes are for people to run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from engine_process import ROOT
from model_file import smollm2


@pytest.mark.model
def test_a_short_soak_finds_no_fault_and_leaves_nothing(tmp_path: Path) -> None:
    found = tmp_path / "report.json"
    command = [sys.executable, "scripts/soak_engine.py", str(smollm2()), "--minutes", "0.33", "--json", str(found)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    report = json.loads(found.read_text())
    assert report["faults"] == []
    assert {"streamed", "whole", "client left"} <= set(report["outcomes"]), report["outcomes"]
    assert report["kv_blocks"]["used"] == 0
    assert report["counters"]["finished"] > 0
