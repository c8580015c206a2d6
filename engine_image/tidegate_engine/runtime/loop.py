"""The step loop: hear what the server has said, make a step, say what came of it."""

from __future__ import annotations

import logging

from tidegate_engine.core.request import FinishReason
from tidegate_engine.core.scheduler import RequestRefused
from tidegate_engine.link.channel import BlockingChannel
from tidegate_engine.link.messages import Abort, Output, Outputs, Quit, Submit, ToRuntime, Vocabulary
from tidegate_engine.runtime.engine import Engine
from tidegate_engine.runtime.followers import Followers
from tidegate_engine.runtime.grammars import Compiled, Grammars

log = logging.getLogger(__name__)


def run(channel: BlockingChannel[ToRuntime], engine: Engine, followers: Followers, grammars: Grammars) -> None:
    """Until the server says Quit or closes the channel. Raises RankLost; ChannelClosed where it closes mid-step.

    Between steps the channel is only looked at; without work this process sleeps on it and on the other ranks.
    """
    was_busy = False
    while not channel.closed:
        rest = not engine.has_work and not was_busy
        outputs: list[Output] = []
        for message in channel.poll(None if rest else 0.0, beside=[*followers.channels, grammars]):
            if isinstance(message, Quit):
                return
            outputs += _hear(message, engine, grammars)
        for compiled in grammars.take():
            outputs += _begin(compiled, engine)
        followers.check()
        busy = engine.has_work
        outputs += engine.step()
        if busy or was_busy or outputs:
            channel.send(Outputs(outputs, engine.stats(), engine.take_events()))
        was_busy = busy


def _hear(message: Submit | Abort | Vocabulary, engine: Engine, grammars: Grammars) -> list[Output]:
    """What is to be said at once: the end of a request that cannot be queued. The server has checked before."""
    if isinstance(message, Vocabulary):
        grammars.learn(message)
        return []
    if isinstance(message, Abort):
        engine.abort(message)
        grammars.drop(message.ids)
        return []
    if message.params.grammar is not None:
        grammars.compile(message)
        return []
    return _begin(Compiled(message, None), engine)


def _begin(compiled: Compiled, engine: Engine) -> list[Output]:
    request, error = compiled.request, compiled.error
    if error is None:
        try:
            engine.submit(request, compiled.constraint)
        except RequestRefused as refusal:
            error = str(refusal)
    if error is None:
        return []
    log.warning("request %d refused: %s", request.id, error)
    return [Output(request.id, [], None, FinishReason.ABORT)]
