"""Runs kept on disk by all that they depend on: the code, the traffic, the policy and its setting."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

from tidegate_lab.scaling_bench.contestants import CONTESTANTS, OURS

Kept = TypeVar("Kept")

ROOT = Path(__file__).parents[3]
SIMULATE = ROOT / "lab/tidegate_lab/simulate"
SHARED = ("signals.py", "told.py", "hpa.py", "plans.py", "needed.py", "__init__.py")
"""Of `simulate/policies`: what more than one law stands on."""


@cache
def code_of(policy: str) -> str:
    """A digest of the code that a run of this policy depends on: the simulator, the traffic, and its own law.

    The operator's deciding counts for our own policy alone, so that tuning it leaves the rivals' runs in place.
    """
    files = [path for path in SIMULATE.glob("*.py") if path.name != "ours.py"]
    files += [SIMULATE / "policies" / name for name in SHARED]
    files += (ROOT / "lab/tidegate_lab/traffic").glob("*.py")
    files += [path for path in (ROOT / "lab/traces").glob("*") if path.is_file() and path.suffix != ".md"]
    files += (ROOT / "operator/tidegate_operator").glob("observed*.py")
    files += (ROOT / "engine_image/tidegate_engine/core").glob("*.py")
    files += [Path(__file__).with_name(name) for name in ("measured.py", "ground.py", "cases.py")]
    if policy in CONTESTANTS:
        files.append(SIMULATE / CONTESTANTS[policy].module)
    if policy == OURS:
        files += (ROOT / "operator/tidegate_operator/decide").glob("*.py")
        files += (ROOT / "operator/tidegate_operator/resource").glob("*.py")
    return _digest(files)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kept(folder: Path, policy: str, key: str, make: Callable[[], Kept]) -> Kept:
    """What `make` gives, or gave when nothing that it depends on was different."""
    name = hashlib.sha256(f"{code_of(policy)} {policy} {key}".encode()).hexdigest()[:32]
    path = folder / f"{policy}-{name}.pickle"
    if path.exists():
        # Only this program writes here, below build/; it is a cache and no exchange format.
        found: Kept = pickle.loads(path.read_bytes())
        return found
    result = make()
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{hashlib.sha256(key.encode()).hexdigest()[:8]}.tmp")
    partial.write_bytes(pickle.dumps(result))
    partial.replace(path)
    return result
