"""Grammars become constraints in a thread beside the step loop; llguidance lets go of the interpreter meanwhile.

A usual schema takes half a millisecond, the nastiest that the server lets through some hundred: others' steps go on.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import OrderedDict
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tidegate_engine.link.messages import Submit, Vocabulary
from tidegate_engine.runtime.constraints import Constraint

if TYPE_CHECKING:
    from tidegate_engine.runtime.matching import MatcherFactory

log = logging.getLogger(__name__)
_KEPT = 64
"""Compiled grammars: a service sees the same few schemas again and again."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A request that can begin, with its grammar's state where it has one, or why it cannot."""

    request: Submit
    constraint: Constraint | None
    error: str | None = None


class Grammars:
    """Takes requests with a grammar and gives them back, in order, with its state; `fileno` is readable then."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._asked: SimpleQueue[Submit | Vocabulary] = SimpleQueue()
        self._done: SimpleQueue[Compiled] = SimpleQueue()
        self._compiling: dict[int, None] = {}
        self._bell, self._listener = socket.socketpair()
        self._listener.setblocking(False)
        self._worker: threading.Thread | None = None

    def learn(self, vocabulary: Vocabulary) -> None:
        """The bytes of every token; said once, before the first grammar."""
        self._asked.put(vocabulary)

    def compile(self, request: Submit) -> None:
        """Begin. The thread starts with the first one: who asks for no grammar pays nothing."""
        if self._worker is None:
            # A daemon: the process need not wait for it when it ends.
            self._worker = threading.Thread(target=self._work, name="grammars", daemon=True)
            self._worker.start()
        self._compiling[request.id] = None
        self._asked.put(request)

    def drop(self, ids: list[int]) -> None:
        """The clients have gone away meanwhile."""
        for id in ids:
            self._compiling.pop(id, None)

    def take(self) -> list[Compiled]:
        """What is ready, in the order of its coming; never waits."""
        found: list[Compiled] = []
        while not self._done.empty():
            compiled = self._done.get()
            self._listener.recv(1)
            if compiled.request.id in self._compiling:
                del self._compiling[compiled.request.id]
                found.append(compiled)
        return found

    def fileno(self) -> int:
        """For select."""
        return self._listener.fileno()

    def _work(self) -> None:
        # Imported here, where nobody waits: loading the library takes 30 ms.
        from tidegate_engine.runtime.matching import GrammarError, MatcherFactory

        factory: MatcherFactory | None = None
        kept: OrderedDict[str, Constraint] = OrderedDict()
        while True:
            asked = self._asked.get()
            if isinstance(asked, Vocabulary):
                factory = MatcherFactory(asked, self._vocab_size)
                continue
            grammar = asked.params.grammar or ""
            try:
                if factory is None:
                    raise GrammarError("a grammar came before the vocabulary")
                constraint = kept.pop(grammar, None) or Constraint(factory.matcher(grammar), self._vocab_size)
                kept[grammar] = constraint
                if len(kept) > _KEPT:
                    kept.popitem(last=False)
                compiled = Compiled(asked, constraint.fork())
            except GrammarError as error:
                compiled = Compiled(asked, None, str(error))
            self._done.put(compiled)
            self._bell.send(b"\0")
