"""`python3 -m tidegate_engine.runtime`: rank 0 is started by the server, the others by rank 0."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from functools import partial
from typing import Any

from tidegate_engine.files import ModelFileError
from tidegate_engine.link.channel import BlockingChannel, ChannelClosed
from tidegate_engine.link.messages import Failed, ToRuntime
from tidegate_engine.runtime.errors import CannotStart, RankLost
from tidegate_engine.runtime.followers import Followers, ToFollower
from tidegate_engine.runtime.process import belong_to_parent, sleep_at_barriers
from tidegate_engine.runtime.settings import RuntimeSettings, parse_settings

log = logging.getLogger("tidegate_engine.runtime")


def main() -> int:
    """The process's exit code: 0 the server has had enough, 2 configuration, 3 model file, 4 a fault of ours."""
    settings = parse_settings(sys.argv[1:])
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(levelname)s runtime[{settings.rank}] %(message)s"
    )
    belong_to_parent()
    sleep_at_barriers()
    end = socket.socket(fileno=settings.socket_fd)
    channel: BlockingChannel[Any] = BlockingChannel(end, ToFollower if settings.rank else ToRuntime)
    try:
        if settings.rank:
            _follow(settings, channel)
        else:
            _lead(settings, channel)
    except ModelFileError as error:
        return _fail(channel, str(error), 3)
    except (CannotStart, RankLost) as error:
        return _fail(channel, str(error), error.exit_code)
    except ChannelClosed:
        return 0
    except Exception as error:
        log.exception("the runtime cannot go on")
        return _fail(channel, f"the runtime died: {type(error).__name__}: {_one_line(error)}", 4)
    return 0


def _lead(settings: RuntimeSettings, channel: BlockingChannel[ToRuntime]) -> None:
    # The other ranks start first, so that all import torch at the same time.
    with Followers(settings, partial(_give_up, channel)) as followers:
        began = time.monotonic()
        from tidegate_engine.runtime.lead import lead

        lead(settings, channel, followers, {"import": time.monotonic() - began})


def _follow(settings: RuntimeSettings, channel: BlockingChannel[ToFollower]) -> None:
    from tidegate_engine.runtime.lead import follow_leader

    follow_leader(settings, channel)


def _fail(channel: BlockingChannel[Any], reason: str, exit_code: int) -> int:
    log.error("%s", reason)
    try:
        channel.send(Failed(reason, exit_code))
    except ChannelClosed:
        log.info("nobody is left to be told")
    return exit_code


def _give_up(channel: BlockingChannel[Any], lost: RankLost) -> None:
    """End this process from beside its main thread, which waits for a rank that will not answer."""
    exit_code = _fail(channel, str(lost), lost.exit_code)
    logging.shutdown()
    os._exit(exit_code)


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:300]


if __name__ == "__main__":
    sys.exit(main())
