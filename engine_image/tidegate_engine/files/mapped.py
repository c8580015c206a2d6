"""A file mapped into memory, with its mistakes named."""

from __future__ import annotations

import mmap
from pathlib import Path

from tidegate_engine.files.errors import ModelFileError


def map_file(path: Path) -> memoryview:
    """The bytes of a file, read from disk as they are touched; the mapping lives as long as the view."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise ModelFileError(f"{path}: is empty; download the file again")
            # Private and writable only so that torch may wrap it; nothing is ever written.
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))
    except FileNotFoundError:
        raise ModelFileError(f"{path}: does not exist; check spec.model.source and what is mounted") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path}: is a folder where a file is needed; name the file itself") from None
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
