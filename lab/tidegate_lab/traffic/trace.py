"""A trace: when requests came, what they asked with and how long their answers were."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival; three columns of one length, which nobody writes to."""

    name: str
    at: NDArray[np.float64]
    """Seconds since the trace's beginning, ascending."""
    prompt: NDArray[np.int32]
    """Tokens of the prompt, one or more."""
    output: NDArray[np.int32]
    """Tokens of the answer, one or more."""
    seconds: float
    """How long the trace is; no less than the last arrival."""
    notes: tuple[str, ...] = ()
    """What was done to the file's rows to make them a trace, in words; for people."""

    def __len__(self) -> int:
        return len(self.at)

    @property
    def rate(self) -> float:
        """Mean arrivals per second."""
        return len(self.at) / self.seconds if self.seconds else 0.0
