"""The one error of unreadable model files."""

from __future__ import annotations


class ModelFileError(Exception):
    """A model cannot be loaded; the message is one line: which file, what is wrong with it, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
