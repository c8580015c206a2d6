"""Several processes, one model: rank 0 leads, and tells the others before each step what it has been told.

Every rank runs the same deterministic scheduler, so a step needs no more than what arrived, what was aborted, what is
guessed, and the tokens of the step before. These travel over Unix sockets, on which an idle rank sleeps without a time
limit and sees the other end die at once; tensors travel by torch.distributed.
"""

from __future__ import annotations

from tidegate_engine.core.scheduler import Batch, Scheduler
from tidegate_engine.link.channel import BlockingChannel
from tidegate_engine.link.messages import Abort, Submit
from tidegate_engine.runtime.errors import RankLost
from tidegate_engine.runtime.followers import Followers, Step, ToFollower
from tidegate_engine.runtime.readout import Readout
from tidegate_engine.runtime.runner import Runner
from tidegate_engine.runtime.sampler import Sampled, Sampler

_GOING_SECONDS = 2.0


class Ranks:
    """All ranks as one: run a batch, get tokens."""

    def __init__(self, runner: Runner, sampler: Sampler, followers: Followers) -> None:
        self._runner = runner
        self._sampler = sampler
        self._followers = followers
        self._events: list[Submit | Abort] = []
        self._sampled: list[list[int]] = []

    def hear(self, event: Submit | Abort) -> None:
        """An event that the leader's scheduler has accepted; the others hear it before the next step."""
        self._events.append(event)

    def run(self, batch: Batch, drafts: dict[int, list[int]]) -> tuple[Sampled, Readout]:
        """Compute on every rank, sample on this one; the batch was scheduled with `drafts`. Raises RankLost."""
        with self._followers.step():
            self._followers.tell(Step(self._sampled, self._events, drafts))
            self._events = []
            try:
                logits, readout = self._runner.run(batch)
            except RuntimeError:
                # The collective operation fails on this side when the other side is gone, maybe before its channel is.
                self._followers.check(_GOING_SECONDS)
                raise
        sampled = self._sampler.sample(batch, logits)
        self._sampled = sampled.tokens
        return sampled, readout


def follow(channel: BlockingChannel[ToFollower], scheduler: Scheduler, runner: Runner) -> None:
    """Do what the leader does, until it closes the channel."""
    batch: Batch | None = None
    while not channel.closed:
        for message in channel.poll(None):
            if not isinstance(message, Step):
                raise RankLost(f"the leader said {type(message).__name__} while steps were running")
            if batch is not None:
                scheduler.commit(batch, message.sampled)
            for event in message.events:
                if isinstance(event, Submit):
                    scheduler.add(event.id, event.prompt, event.params, event.priority)
                else:
                    scheduler.abort(event.ids)
            batch = scheduler.schedule(message.drafts)
            if batch is None:
                raise RankLost("the leader has a step and this rank has none")
            runner.run(batch)
