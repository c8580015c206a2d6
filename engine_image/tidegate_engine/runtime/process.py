"""What makes this a process that belongs to another: it ignores signals meant for the pod, and dies with its parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def belong_to_parent() -> None:
    """SIGTERM and SIGINT reach the whole group and mean the server, which drains first; the parent's death means us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # A parent that died before prctl sends no signal; its channel is closed, which ends the process as well.


def sleep_at_barriers() -> None:
    """Let OpenMP's threads sleep when they wait for each other. To be called before torch is imported.

    By default they spin for milliseconds. In a pod that burns the CPU quota, and beside other work the thread that is
    waited for does not get its core: measured at a load of 12 on 2 cores, 1.6 s a step spinning, 0.5 s sleeping. 1000
    rounds are about 50 microseconds, which bridges the gaps between a step's own operations.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
