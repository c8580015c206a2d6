"""One run: each part that was asked for, into one report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tidegate_bench.llama_cpp_environment import environment, ready
from tidegate_bench.machine import look
from tidegate_bench.mixed import measure_mixed, traffic_json
from tidegate_bench.plan import DECODES, PROMPT, DecodeFigure, Traffic
from tidegate_bench.quality import quality_command, quality_of
from tidegate_bench.report import Report, bandwidth_reached
from tidegate_bench.server_process import Server
from tidegate_bench.settings import SPEED, BenchSettings
from tidegate_bench.speed import measure_decode, measure_prompt, warm_up
from tidegate_bench.start_time import measure_starts, seconds_of
from tidegate_bench.turns import Comparison, compare
from tidegate_bench.worker_process import Worker, WorkerFailed, output_of
from tidegate_bench.workers.continuous_batching import Course

_PEER = "llama.cpp"


class Run:
    """What is measured and what has come of it so far. `say` hears which part is next."""

    def __init__(self, settings: BenchSettings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._common = ["--model", str(settings.model), "--threads", str(settings.threads)]
        self.report = Report(settings.model.name, look(_read_bandwidth), settings.threads)

    def measure(self) -> None:
        """All that was asked for. Raises WorkerFailed, CannotBuild."""
        wanted = set(self._settings.only)
        if wanted & set(SPEED):
            self._speed()
        if "mixed" in wanted:
            self._mixed()
        if "start" in wanted:
            self._start()
        if "perplexity" in wanted:
            self._say("perplexity")
            command = quality_command(sys.executable, self._settings.model, self._settings.threads)
            printed = output_of(command, _engine_path())
            self.report.perplexity = {found.text: found for found in quality_of(printed)}

    def _speed(self) -> None:
        settings, report = self._settings, self.report
        ours = Worker(Path(sys.executable), "tidegate_bench.workers.ours", self._common, _engine_path())
        peer = Worker(self._peer_python(), "tidegate_bench.workers.llama_cpp", self._common)
        with ours, peer:
            for worker in (ours, peer):
                report.engines[worker.hello.name] = worker.hello.kernels
                warm_up(worker)
            if PROMPT.key in settings.only:
                self._say(PROMPT.key)
                pairs = measure_prompt(PROMPT, ours, peer, settings.rounds)
                report.compared(PROMPT.key, compare(pairs), _PEER, {})
            for figure in DECODES:
                if figure.key in settings.only:
                    self._say(figure.key)
                    found = compare(list(measure_decode(figure, ours, peer, settings.rounds)))
                    report.compared(figure.key, found, _PEER, self._bandwidth(figure, found, ours))

    def _bandwidth(self, figure: DecodeFigure, found: Comparison, ours: Worker) -> dict[str, float]:
        held = figure.requests * (figure.context + figure.new_tokens / 2)
        return bandwidth_reached(ours.hello, found.ours / figure.requests, held, self.report.machine)

    def _mixed(self) -> None:
        def ours(traffic: Traffic) -> Course:
            self._say("mixed: ours")
            with self._server() as server:
                server.first_token()
                return server.serve(traffic)

        def peer(traffic: Traffic) -> Course:
            self._say("mixed: peer")
            command = [str(self._peer_python()), "-m", "tidegate_bench.workers.llama_cpp_mixed", *self._common]
            return Course(**json.loads(output_of(command, [], traffic_json(traffic))))

        self.report.served(measure_mixed(self._settings.requests, _ORDINARY_IDS, ours, peer), _PEER)

    def _start(self) -> None:
        def engine() -> tuple[float, list[str]]:
            with self._server() as server:
                took = server.first_token()
                return took, server.said()

        def bare() -> None:
            output_of([sys.executable, "-c", "import torch"], [])

        def peer() -> None:
            command = [sys.executable, "-m", "tidegate_bench.workers.transformers_start", *self._common]
            output_of(command, [])

        self._say("start")
        starts = measure_starts(self._settings.rounds, engine, bare)
        took: float | None = None
        try:
            took = seconds_of(peer)
        except WorkerFailed as error:
            # Not every environment lets transformers read a GGUF file; ours is measured all the same.
            self.report.remarks.append(f"start: no peer, {str(error).splitlines()[-1]}")
        self.report.started(starts, took, "transformers generate")

    def _server(self) -> Server:
        return Server(sys.executable, self._settings.model, _engine_path())

    def _peer_python(self) -> Path:
        given = self._settings.llama_cpp_python
        return given or ready(environment(self._settings.cache, self.report.machine.instruction_sets))


_ORDINARY_IDS = 32_000
"""Token ids of mixed traffic lie below this, which every vocabulary has."""


def _read_bandwidth(threads: int) -> float:
    return float(output_of([sys.executable, "-m", "tidegate_bench.machine", str(threads)], []))


def _engine_path() -> list[Path]:
    """Where this process found the engine's sources, so that workers of a working tree measure that tree."""
    return [Path(entry) for entry in sys.path if (Path(entry) / "tidegate_engine").is_dir()][:1]
