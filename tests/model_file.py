"""Where the real model lies; a test that needs it fails without it, and says what to do."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2() -> Path:
    """The model file in the cache. Raises FileNotFoundError, never skips."""
    cache = os.environ.get("TIDEGATE_CACHE")
    if not cache:
        cache = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate")
    path = Path(cache) / "models" / NAME
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the model is not in the cache; run `make setup`")
    return path
