"""One JSON line an event on stderr. Lines never hold prompts, answers, header values or secrets."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

LOGGER = "tidegate"


class JSONLines(logging.Formatter):
    """An exception is written as its type and where it was raised: its message may hold a user's text."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, without the record's arguments formatted in twice."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update(fields)
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])[-6:]
            line["exception"] = record.exc_info[0].__name__
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, default=str)


def set_up_logs() -> None:
    """Send our own lines, and what libraries warn of, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(LOGGER).setLevel(logging.INFO)


def log(event: str, level: int = logging.INFO, **fields: object) -> None:
    """Say that something happened."""
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields})
