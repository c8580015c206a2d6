"""Runs kept on disk by all that they depend on: the code, the traffic, the policy and its setting."""

from __future__ import annotations

import ast
import hashlib
import pickle
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

from tidegate_lab.scaling_bench.contestants import CONTESTANTS

Kept = TypeVar("Kept")

ROOT = Path(__file__).parents[3]
SOURCES = ("lab", "operator", "engine_image")
TRACES = ROOT / "lab/traces"
BASE = "tidegate_lab.scaling_bench.ground"
"""What every run goes through."""


@cache
def code_of(policy: str) -> str:
    """A digest of the code that a run of this policy depends on: all that its law and the simulator import of ours.

    The operator's deciding is among that of our own policy alone, so that tuning it leaves the rivals' runs in place.
    """
    law = [CONTESTANTS[policy].module] if policy in CONTESTANTS else []
    digest = hashlib.sha256()
    for path in sorted({*imported([BASE, *law]), *(file for file in TRACES.iterdir() if file.is_file())}):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def imported(modules: Iterable[str]) -> set[Path]:
    """The files of these modules and of all in the source tree that they import, and those in turn."""
    found: set[Path] = set()
    left = list(modules)
    while left:
        path = _file_of(left.pop())
        if path is None or path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                left += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _file_of(module: str) -> Path | None:
    for source in SOURCES:
        base = ROOT / source / Path(*module.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


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
