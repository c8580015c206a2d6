"""Reading model files: metadata, configuration and where each tensor lies. Law: the standard library only."""

from tidegate_engine.files.errors import ModelFileError

__all__ = ["ModelFileError"]
