"""`python3 -m tidegate_engine`: the server's process, which starts the runtime's before anything else.

Exit codes: 0 after SIGTERM and drain, 2 for a wrong configuration, 3 for a model that cannot be loaded, 4 where the
runtime died. The reason is the last line on stderr, and is left for the kubelet in the termination log.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tidegate_engine.server.endings import CONFIGURATION, MODEL_FILE, EngineEnded
from tidegate_engine.server.runtime_process import RUNTIME, RuntimeProcess
from tidegate_engine.settings import TERMINATION_LOG, Settings, SettingsError, parse_settings


class _EarlySignals:
    """Remembers SIGTERM until the event loop takes signals over, so that the runtime is not left behind."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def main(arguments: Sequence[str], runtime: Sequence[str] = RUNTIME) -> int:
    """Run the engine to its end; the exit code."""
    try:
        settings = parse_settings(arguments)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        _leave_word(TERMINATION_LOG, str(error))
        return CONFIGURATION
    try:
        _run(settings, runtime)
    except EngineEnded as end:
        print(end.reason, file=sys.stderr, flush=True)  # noqa: T201
        _leave_word(settings.termination_log, end.reason)
        return end.exit_code
    return 0


def _run(settings: Settings, runtime: Sequence[str]) -> None:
    if not settings.model.exists():
        raise EngineEnded(
            MODEL_FILE, f"--model {settings.model}: no such file or folder; check model.source and its claim"
        )
    if settings.draft_model is not None and not settings.draft_model.exists():
        raise EngineEnded(
            MODEL_FILE,
            f"--draft-model {settings.draft_model}: no such file or folder; check engine.speculative.draftSource",
        )
    early = _EarlySignals()
    process = RuntimeProcess.start(settings.runtime_arguments(), runtime)
    try:
        # Imported while the runtime imports torch: the two take the same time on two cores.
        import asyncio

        import uvloop

        from tidegate_engine.server.logs import set_up_logs
        from tidegate_engine.server.serve import serve

        set_up_logs()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, process, lambda: early.asked))
    finally:
        process.kill()


def _leave_word(path: Path, reason: str) -> None:
    """The kubelet makes the file; where there is no kubelet there is none to tell."""
    if path.exists():
        path.write_text(f"{reason}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
