"""Why a runtime ends, by what the pod's exit code should be."""

from __future__ import annotations


class CannotStart(Exception):
    """The configuration cannot work on this machine; exit code 2. One line: the setting, its value, the remedy."""

    exit_code = 2


class RankLost(Exception):
    """A process of this model died or could not start; the others cannot go on."""

    def __init__(self, reason: str, exit_code: int = 4) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
