"""What the server cannot see by itself of a request's course: the shares of its prompt, and when it lost its blocks."""

from __future__ import annotations

from tidegate_engine.core.scheduler import Batch
from tidegate_engine.link.messages import Event, Submit


class Trace:
    """Knows the prompts' lengths of live requests. A step that only decodes costs a look-up for each."""

    def __init__(self) -> None:
        self._prompts: dict[int, int] = {}
        self._events: list[Event] = []

    def begin(self, request: Submit) -> None:
        """A request is queued."""
        self._prompts[request.id] = len(request.prompt)

    def end(self, id: int) -> None:
        """A request is over; one that is not known is no news."""
        self._prompts.pop(id, None)

    def step(self, batch: Batch, number: int, now: float) -> None:
        """Step `number` begins `now`."""
        lengths = self._prompts
        self._events += [Event(id, number, now, 0, 0) for id in batch.preempted if id in lengths]
        self._events += [
            Event(part.id, number, now, part.start, len(part.token_ids))
            for part in batch.work
            if part.start < lengths.get(part.id, 0)
        ]

    def take(self) -> list[Event]:
        """What happened since this was last asked."""
        events, self._events = self._events, []
        return events
