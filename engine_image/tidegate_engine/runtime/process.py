"""What makes this a process that belongs to another: it ignores signals meant for the pod, and dies with its parent."""

from __future__ import annotations

import ctypes
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
