"""What may go wrong between the operator and the cluster, named by what to do next."""

from __future__ import annotations


class WorldError(Exception):
    """Base: the world did not do what was asked. `reason` is one CamelCase word, the message one line."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class RetryLater(WorldError):
    """Nobody need act: the API server was busy, unreachable, or newer than our view. Look again with backoff."""


class WaitFor(WorldError):
    """Something is on its way and will end (garbage collection of an earlier object). Look again soon."""


class Stall(WorldError):
    """A person has to change something (quota, rights, a value the API server refuses): say so, look again slowly."""


class Gone(WorldError):
    """The object, or its namespace, is being deleted: there is nothing left to do."""
