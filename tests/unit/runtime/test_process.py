"""The runtime as a process: it ends with a reason, and never outlives whom it belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from model_file import smollm2
from patience import PATIENCE_S
from runtime_process import ENGINE, RuntimeProcess, children, wait_until_gone
from small_gguf import gguf_bytes
from tidegate_engine.core.request import FinishReason, SamplingParams

SMALL = ("--dtype", "float32", "--max-model-len", "256", "--threads", "1", "--kv-cache-memory", str(64 * 2**20))
LONG = SamplingParams(max_tokens=200, temperature=0.0)
SHORT = SamplingParams(max_tokens=3, temperature=0.0)


def test_a_model_that_is_not_there_is_code_3_and_one_line() -> None:
    with RuntimeProcess(Path("/nowhere/model.gguf")) as runtime:
        failed = runtime.failed()
        assert failed.exit_code == 3
        assert "/nowhere/model.gguf" in failed.reason
        assert "\n" not in failed.reason
        assert runtime.process.wait(PATIENCE_S) == 3


def test_a_file_that_is_no_model_is_code_3(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("GGUF? no.")
    with RuntimeProcess(tmp_path / "model.gguf") as runtime:
        assert runtime.failed().exit_code == 3
        assert runtime.process.wait(PATIENCE_S) == 3


@pytest.mark.model
def test_a_cache_too_small_for_one_request_is_code_2_and_names_the_remedy() -> None:
    with RuntimeProcess(smollm2(), *SMALL, "--kv-cache-memory", str(2**20)) as runtime:
        failed = runtime.failed()
        assert failed.exit_code == 2
        assert "kvCacheMemory 1Mi" in failed.reason
        assert "or lower model.maxModelLen" in failed.reason
        assert runtime.process.wait(PATIENCE_S) == 2


@pytest.mark.model
def test_one_life_of_a_runtime() -> None:
    with RuntimeProcess(smollm2(), *SMALL) as runtime:
        ready = runtime.ready()
        assert (ready.max_model_len, ready.block_size, ready.slots) == (256, 16, 32)
        assert set(ready.seconds) == {"import", "weights", "kv", "warmup"}

        # SIGTERM and SIGINT are the server's to act upon.
        os.kill(runtime.process.pid, signal.SIGTERM)
        os.kill(runtime.process.pid, signal.SIGINT)
        assert len(runtime.answers([[5, 6, 7]], SHORT)[0]) == 3
        rest = runtime.outputs()
        assert (rest.outputs, rest.stats.running, rest.stats.generated_tokens) == ([], 0, 3)

        # What cannot be computed ends alone.
        runtime.submit(10, [ready.vocab_size], SHORT)
        runtime.submit(11, [], SHORT)
        runtime.submit(12, [1] * 300, SHORT)
        runtime.submit(13, [5], SHORT)
        ends: dict[int, FinishReason] = {}
        while len(ends) < 4:
            for output in runtime.outputs().outputs:
                if output.finish_reason is not None:
                    ends[output.id] = output.finish_reason
        assert ends == {10: FinishReason.ABORT, 11: FinishReason.ABORT, 12: FinishReason.ABORT, 13: FinishReason.LENGTH}

        # A client that goes away frees its blocks, and the last message says so.
        runtime.submit(20, [5] * 40, LONG)
        while not any(output.id == 20 for output in runtime.outputs().outputs):
            pass
        runtime.abort(20)
        while (said := runtime.outputs()).stats.running:
            pass
        assert (said.outputs, said.stats.kv_blocks_used, said.stats.waiting) == ([], 0, 0)
        assert runtime.quit() == 0


@pytest.mark.model
@pytest.mark.parametrize("busy", [False, True], ids=["while it is idle", "in the middle of a step"])
def test_a_closed_channel_ends_every_rank(busy: bool) -> None:
    with RuntimeProcess(smollm2(), *SMALL, "--tensor-parallel", "2") as runtime:
        runtime.ready()
        processes = [runtime.process.pid, *children(runtime.process.pid)]
        assert len(processes) == 2
        if busy:
            runtime.submit(1, [5] * 20, LONG)
            runtime.outputs()
        runtime.channel.close()
        assert runtime.process.wait(PATIENCE_S) == 0
        wait_until_gone(processes)


@pytest.mark.model
@pytest.mark.parametrize("busy", [False, True], ids=["while it is idle", "in the middle of a step"])
def test_a_rank_that_dies_ends_the_whole_with_a_reason(busy: bool) -> None:
    with RuntimeProcess(smollm2(), *SMALL, "--tensor-parallel", "2") as runtime:
        runtime.ready()
        [other] = children(runtime.process.pid)
        if busy:
            runtime.submit(1, [5] * 20, LONG)
            runtime.outputs()
        os.kill(other, signal.SIGKILL)
        failed = runtime.failed()
        assert (failed.reason, failed.exit_code) == ("rank 1 of 2 was killed by signal 9", 4)
        assert runtime.process.wait(PATIENCE_S) == 4


def test_a_rank_that_dies_before_the_ranks_have_met_ends_the_whole_with_a_reason(tmp_path: Path) -> None:
    """Rank 0 then waits for it in the rendezvous, within torch."""
    (tmp_path / "model.gguf").write_bytes(gguf_bytes())
    with RuntimeProcess(tmp_path / "model.gguf", "--dtype", "float32", "--tensor-parallel", "2") as runtime:
        deadline = time.monotonic() + PATIENCE_S
        while not (others := children(runtime.process.pid)):
            assert time.monotonic() < deadline, "no other rank has started"
            time.sleep(0.01)
        os.kill(others[0], signal.SIGKILL)
        died = time.monotonic()
        failed = runtime.failed()
        assert (failed.reason, failed.exit_code) == ("rank 1 of 2 was killed by signal 9", 4)
        assert runtime.process.wait(PATIENCE_S) == 4
        assert time.monotonic() - died < 60, "it waited until the rendezvous gave up by itself"


def test_a_rank_that_stops_in_a_step_ends_the_whole_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf_bytes())
    with RuntimeProcess(tmp_path / "model.gguf", "--dtype", "float32", "--tensor-parallel", "2") as runtime:
        runtime.ready()
        [other] = children(runtime.process.pid)
        os.kill(other, signal.SIGSTOP)
        runtime.submit(1, [1, 2], SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True))
        failed = runtime.failed()
        assert (failed.reason, failed.exit_code) == ("rank 1 of 2 is stopped in the middle of a step", 4)
        assert runtime.process.wait(PATIENCE_S) == 4
        wait_until_gone([other])


_SERVER = """
import socket, subprocess, sys
ours, theirs = socket.socketpair()
command = [sys.executable, "-m", "tidegate_engine.runtime", "--socket-fd", str(theirs.fileno()), *sys.argv[1:]]
runtime = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
theirs.close()
ours.recv(1)
print(runtime.pid, flush=True)
runtime.wait()
"""


@pytest.mark.model
def test_a_server_that_is_killed_takes_every_rank_with_it() -> None:
    flags = ["--model", str(smollm2()), *SMALL, "--tensor-parallel", "2"]
    environment = os.environ | {"PYTHONPATH": str(ENGINE)}
    server = subprocess.Popen([sys.executable, "-c", _SERVER, *flags], stdout=subprocess.PIPE, env=environment)
    with server:
        assert server.stdout is not None
        leader = int(server.stdout.readline())
        processes = [leader, *children(leader)]
        assert len(processes) == 2
        server.kill()
        server.wait()
        wait_until_gone(processes)
