"""Processes that are measured go before whatever else the machine does, where the user may ask for that.

llama.cpp's threads wait for each other by spinning: with 1.3 of 2 cores taken by others it made 10 tokens a second
instead of 130. Where Linux groups processes by session (autogroup), priority counts between groups, so that each
measured process is the first of a session of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_NICE = -15
"""A weight of about 28 ordinary processes."""


def start(
    command: Sequence[str], env: Mapping[str, str], stderr: IO[str] | int, pipes: bool = False
) -> subprocess.Popen[str]:
    """Start a process in a session of its own, before all others where that is allowed; with pipes, for talking to."""
    pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=env, stdin=pipe, stdout=pipe, stderr=stderr, text=True, start_new_session=True
    )
    prefer(process.pid)
    return process


def prefer(pid: int) -> bool:
    """Whether a process and its session now go before others."""
    group = Path(f"/proc/{pid}/autogroup")
    try:
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        if group.exists():
            group.write_text(str(_NICE))
    except (PermissionError, ProcessLookupError):
        return False
    return True
