"""A server before a scripted runtime, one for a module that asks for nothing special."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_process import EngineProcess
from tiny_tokenizer import tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[EngineProcess]:
    with EngineProcess(tiny, "--max-running-requests", "4", "--max-queued-requests", "4", fake=[]) as engine:
        yield engine.wait_ready()
