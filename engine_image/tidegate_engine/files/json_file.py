"""JSON files of a model's or an adapter's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidegate_engine.files.errors import ModelFileError


def read_json(path: Path, folder_holds: str) -> Any:
    """What the file says; `folder_holds` tells whoever lacks it what there should be. Raises ModelFileError."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelFileError(f"{path}: does not exist; {folder_holds}") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read as JSON ({error}); download it again") from None
