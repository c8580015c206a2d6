"""How the process may end other than well: an exit code and one line for the user."""

from __future__ import annotations

CONFIGURATION = 2
MODEL_FILE = 3
RUNTIME_DIED = 4


class EngineEnded(Exception):
    """The engine cannot go on; `reason` is one line."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = " ".join(reason.split())
