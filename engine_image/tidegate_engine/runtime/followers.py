"""The processes of ranks 1 and up, as rank 0 starts, tells and loses them.

Imports no torch: they start before it loads.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidegate_engine.link.channel import BlockingChannel, ChannelClosed
from tidegate_engine.link.messages import Abort, Failed, Submit
from tidegate_engine.runtime.errors import RankLost
from tidegate_engine.runtime.settings import RuntimeSettings
from tidegate_engine.runtime.watch import Rank, Watch

_END_SECONDS = 5.0
"""How long all of them have to end when they are told to."""
_FAULT_SECONDS = 1.0


class Loaded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A follower has its weights, and memory for so many blocks."""

    num_blocks: int


class Begin(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What all ranks agree on: the size of the pool, and the key of its digests."""

    num_blocks: int
    hash_key: bytes


class Step(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Commit the step before with these tokens, hear these events in order, then schedule these guesses and compute."""

    sampled: list[list[int]]
    events: list[Submit | Abort]
    drafts: dict[int, list[int]] = {}
    """Guesses by request: only the leader makes them, all schedule them alike."""


ToLeader = Loaded | Failed
ToFollower = Begin | Step


@dataclass(frozen=True, slots=True)
class Follower:
    """Another rank, as rank 0 sees it."""

    rank: int
    process: subprocess.Popen[bytes]
    channel: BlockingChannel[ToLeader]

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.process.pid

    def has_ended(self) -> bool:
        """Whether its process is gone, without waiting."""
        return self.process.poll() is not None


class Followers:
    """The processes of ranks 1 and up. A context manager: none is left when it ends, however it ends."""

    def __init__(self, settings: RuntimeSettings, give_up: Callable[[RankLost], None] | None = None) -> None:
        """`give_up` is called from another thread where a rank is lost while this one waits for it; it must not return.

        Without it that is noticed when the waiting ends by itself.
        """
        self._settings = settings
        self._give_up = give_up
        self._watch: Watch | None = None
        self._steps = 0
        self._cleanup = ExitStack()
        self.rendezvous: Path | None = None
        """A file for all ranks to meet at; None for a single one."""
        self._all: list[Follower] = []

    def __enter__(self) -> Followers:
        if self._settings.tensor_parallel > 1:
            directory = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-ranks-"))
            self.rendezvous = Path(directory) / "rendezvous"
            for rank in range(1, self._settings.tensor_parallel):
                self._all.append(self._start(rank, self.rendezvous))
            if self._give_up is not None:
                self._watch = Watch(self._all, self._died, self._stuck)
                self._watch.start()
        return self

    def _start(self, rank: int, rendezvous: Path) -> Follower:
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = self._settings.follower_arguments(rank, theirs.fileno(), rendezvous)
            process = subprocess.Popen(
                [sys.executable, "-m", "tidegate_engine.runtime", *arguments], pass_fds=(theirs.fileno(),)
            )
        return Follower(rank, process, BlockingChannel(ours, ToLeader))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._watch is not None:
            self._watch.stop()
        for follower in self._all:
            follower.channel.close()
        # After a fault the others may wait for one that is gone, and will not see that their channels are closed.
        deadline = time.monotonic() + (_END_SECONDS if error is None else _FAULT_SECONDS)
        for follower in self._all:
            try:
                follower.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                follower.process.kill()
                follower.process.wait()
        self._cleanup.close()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around a step of all ranks: one that hangs within it is noticed."""
        self._steps += 1
        if self._watch is not None:
            self._watch.step = self._steps
        yield
        if self._watch is not None:
            self._watch.step = None

    def _died(self, rank: Rank) -> None:
        follower = next(follower for follower in self._all if follower.rank == rank.rank)
        self._abandon(self._lost(follower, follower.channel.poll()))

    def _stuck(self, wrong: str) -> None:
        self._abandon(RankLost(wrong))

    def _abandon(self, lost: RankLost) -> None:
        # The others are left to die with this process: were they killed first, the main thread would wake to an error
        # that says less.
        self._cleanup.close()
        if self._give_up is not None:
            self._give_up(lost)

    @property
    def channels(self) -> list[BlockingChannel[ToLeader]]:
        """To sleep on: a rank says nothing while it works, so anything readable is its end."""
        return [follower.channel for follower in self._all]

    def least_blocks(self, own: int) -> int:
        """Wait until all have loaded; the number of blocks that every rank has room for. Raises RankLost."""
        least = own
        for follower in self._all:
            messages = follower.channel.poll(None)
            while not messages and not follower.channel.closed:
                messages = follower.channel.poll(None)
            if not messages or isinstance(messages[0], Failed):
                raise self._lost(follower, messages)
            least = min(least, messages[0].num_blocks)
        return least

    def tell(self, message: ToFollower) -> None:
        """The same to all. Raises RankLost."""
        for follower in self._all:
            try:
                follower.channel.send(message)
            except ChannelClosed:
                raise self._lost(follower, follower.channel.poll()) from None

    def check(self, seconds: float = 0.0) -> None:
        """Raise RankLost where one has ended, or does within so many seconds."""
        if seconds:
            select.select(self.channels, [], [], seconds)
        for follower in self._all:
            messages = follower.channel.poll()
            if messages or follower.channel.closed:
                raise self._lost(follower, messages)

    def _lost(self, follower: Follower, messages: list[ToLeader]) -> RankLost:
        for message in messages:
            if isinstance(message, Failed):
                return RankLost(message.reason, message.exit_code)
        try:
            code = follower.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return RankLost(f"rank {follower.rank} of {self._settings.tensor_parallel} closed its channel")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return RankLost(f"rank {follower.rank} of {self._settings.tensor_parallel} {how}")
