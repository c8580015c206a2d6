"""Clients that leave or read slowly, full queues, dead runtimes, SIGTERM at every moment: nothing stays behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_process import NAME, ROOT, EngineProcess, streamed_text, wait_until
from patience import PATIENCE_S


def endless(stream: bool = True, **fields: Any) -> dict[str, Any]:
    """Some 500 tokens; with a pace of 10 ms, five seconds."""
    return {"model": NAME, "prompt": "abc", "max_tokens": 500, "stream": stream, **fields}


@pytest.fixture(scope="module")
def slow(tiny: Path) -> Iterator[EngineProcess]:
    """Two may run, two may wait, a token takes 10 ms."""
    flags = ["--max-running-requests", "2", "--max-queued-requests", "2"]
    with EngineProcess(tiny, *flags, fake=["--pace", "0.01"]) as engine:
        yield engine.wait_ready()


@pytest.mark.parametrize("n", [1, 3], ids=["one choice", "three choices"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_frees_its_blocks(slow: EngineProcess, stream: bool, n: int) -> None:
    body = json.dumps(endless(stream, n=n)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    before = slow.load()["counters"]
    with socket.create_connection(("127.0.0.1", slow.port)) as client:
        client.sendall(head + body)
        wait_until(lambda: slow.load()["kv_blocks"]["used"] == n, "running")
    slow.wait_idle()
    counters = slow.load()["counters"]
    assert counters["finished"] == before["finished"] + 1
    assert counters["generated_tokens"] < before["generated_tokens"] + 500 * n, "it went on to its end"


def test_more_than_may_run_and_wait_are_429_and_are_told_when_to_come_back(slow: EngineProcess) -> None:
    rejected = slow.load()["counters"]["rejected"]
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(slow.http.post, "/v1/completions", json=endless(max_tokens=300)) for _ in range(4)]
        wait_until(lambda: slow.load()["running"] == 4, "all four in flight")
        refused = slow.http.post("/v1/completions", json=endless(False))
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert [answer.result().status_code for answer in answers] == [200] * 4
    counters = slow.load()["counters"]
    assert counters["rejected"] == rejected + 1
    assert counters["received"] == counters["finished"] + counters["rejected"]


def test_bad_requests_leave_a_stream_beside_them_unharmed(slow: EngineProcess) -> None:
    with slow.http.stream("POST", "/v1/completions", json=endless(max_tokens=60)) as answer:
        lines = answer.iter_lines()
        first = next(lines)
        for bad in ({"prompt": ""}, {"logit_bias": {"99999": 1}}, {"prompt": [1] * 9999}, {"prompt": [-1]}, {"n": 0}):
            assert slow.http.post("/v1/completions", json=endless(False, **bad)).status_code == 400
        text = "\n".join([first, *lines])
    assert streamed_text(text) == "abc" * 20
    assert text.rstrip().endswith("[DONE]")


def test_a_reader_that_reads_nothing_keeps_nothing_running(slow: EngineProcess) -> None:
    body = json.dumps(endless(n=2, logprobs=20, max_tokens=400)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", slow.port))
        client.sendall(head + body)
        wait_until(lambda: slow.load()["running"] == 1, "running")
        slow.wait_idle()
    assert slow.chat("abc", max_tokens=1).status_code == 200


def test_requests_before_ready_are_503_and_the_admin_port_says_starting(tiny: Path) -> None:
    with EngineProcess(tiny, fake=["--start", "30"]) as engine:
        engine.wait_listening()
        assert engine.ready_status() == 503
        assert engine.load()["state"] == "starting"
        assert engine.admin.get("/health").status_code == 200
        # The operator's client asks for a length, and for a connection that stays (docs/seams.md).
        headers = engine.admin.get("/load").headers
        assert int(headers["content-length"]) > 0
        assert "connection" not in headers
        refused = engine.chat()
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert engine.http.get("/v1/models").status_code == 503


def test_sigterm_while_loading_ends_at_once_with_zero_and_no_child(tiny: Path) -> None:
    with EngineProcess(tiny, fake=["--start", "600"], lag=5) as engine:
        engine.wait_listening()
        children = engine.children()
        assert children
        engine.process.send_signal(signal.SIGTERM)
        assert engine.ended() == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_sigterm_before_anything_is_imported_leaves_no_child(tiny: Path) -> None:
    with EngineProcess(tiny, fake=["--start", "600"]) as engine:
        wait_until(lambda: bool(engine.children()), "a child")
        children = engine.children()
        engine.process.send_signal(signal.SIGTERM)
        assert engine.ended() == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_sigterm_goes_on_accepting_for_the_lag_then_finishes_what_runs(tiny: Path) -> None:
    with EngineProcess(tiny, fake=["--pace", "0.01"], lag=3.0) as engine, ThreadPoolExecutor(2) as pool:
        engine.wait_ready()
        first = pool.submit(engine.http.post, "/v1/completions", json=endless(max_tokens=250))
        wait_until(lambda: engine.load()["running"] == 1, "running")
        children = engine.children()
        engine.process.send_signal(signal.SIGTERM)
        wait_until(lambda: engine.ready_status() == 503, "not ready at once")
        assert engine.load()["state"] == "draining"
        late = engine.chat("abc", max_tokens=3)
        assert late.status_code == 200
        assert late.headers["connection"] == "close"
        answer = first.result(PATIENCE_S)
        assert len(streamed_text(answer.text)) == 250
        assert answer.text.endswith("data: [DONE]\n\n")
        assert engine.ended() == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_a_second_sigterm_cuts_the_drain_short_and_tells_the_clients(tiny: Path) -> None:
    with EngineProcess(tiny, fake=["--pace", "0.05"], lag=300) as engine, ThreadPoolExecutor(1) as pool:
        engine.wait_ready()
        answer = pool.submit(engine.http.post, "/v1/completions", json=endless())
        wait_until(lambda: engine.load()["running"] == 1, "running")
        engine.process.send_signal(signal.SIGTERM)
        wait_until(lambda: engine.ready_status() == 503, "draining")
        engine.process.send_signal(signal.SIGTERM)
        assert '"type":"service_unavailable"' in answer.result(PATIENCE_S).text
        assert answer.result().text.endswith("data: [DONE]\n\n")
        assert engine.ended() == 0


def test_the_drain_timeout_ends_what_is_still_running(tiny: Path) -> None:
    with (
        EngineProcess(tiny, "--drain-timeout", "0.3", fake=["--pace", "0.05"]) as engine,
        ThreadPoolExecutor(1) as pool,
    ):
        engine.wait_ready()
        answer = pool.submit(engine.http.post, "/v1/completions", json=endless(stream=False))
        wait_until(lambda: engine.load()["running"] == 1, "running")
        engine.process.send_signal(signal.SIGTERM)
        assert answer.result(PATIENCE_S).status_code == 503
        assert engine.ended() == 0


def test_drain_can_be_undone_and_never_ends_the_process(tiny: Path) -> None:
    with EngineProcess(tiny, fake=[]) as engine:
        engine.wait_ready()
        assert engine.admin.post("/drain").status_code == 200
        assert (engine.ready_status(), engine.load()["state"]) == (503, "draining")
        answer = engine.chat("abc", max_tokens=1)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert engine.admin.delete("/drain").status_code == 200
        assert (engine.ready_status(), engine.load()["state"]) == (200, "ready")
        assert engine.chat("abc", max_tokens=1).headers.get("connection") != "close"
        assert engine.process.poll() is None


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        pytest.param(["--die-at-step", "3"], 4, "exit code 9", id="a runtime that dies without a word"),
        pytest.param(["--fail-at-step", "3"], 4, "the accelerator fell off the bus", id="a runtime that says why"),
    ],
)
def test_a_dead_runtime_ends_the_process_with_its_reason_and_tells_every_client(
    tiny: Path, tmp_path: Path, script: list[str], code: int, said: str
) -> None:
    word = tmp_path / "termination-log"
    word.touch()
    with EngineProcess(tiny, "--termination-log", str(word), fake=[*script, "--pace", "0.05"]) as engine:
        engine.wait_ready()
        answer = engine.http.post("/v1/completions", json=endless())
        assert '"error"' in answer.text
        assert answer.text.endswith("data: [DONE]\n\n")
        assert engine.ended() == code
        assert said in engine.stderr().splitlines()[-1]
        assert word.read_text() == engine.stderr().splitlines()[-1] + "\n"


def test_a_model_that_cannot_be_loaded_ends_with_the_runtimes_reason(tiny: Path) -> None:
    with EngineProcess(tiny, fake=["--fail-at-start", "model.bin: is cut short; download it again"]) as engine:
        assert engine.ended() == 3
        assert engine.stderr().splitlines()[-1] == "model.bin: is cut short; download it again"


def test_a_port_that_is_taken_is_a_wrong_configuration(tiny: Path) -> None:
    with EngineProcess(tiny, fake=[]) as first:
        first.wait_ready()
        with EngineProcess(tiny, "--port", str(first.port), fake=[]) as second:
            assert second.ended() == 2
            assert f"port {first.port}" in second.stderr().splitlines()[-1]


def test_a_wrong_flag_and_a_missing_model_are_one_line_each(tiny: Path) -> None:
    for flags, code, named in ((["--dtype", "int3"], 2, "--dtype"), (["--model", "/nowhere"], 3, "/nowhere")):
        with EngineProcess(tiny, *flags) as engine:
            assert engine.ended() == code
            (line,) = engine.stderr().splitlines()
            assert named in line


def test_nothing_a_client_sends_is_logged(slow: EngineProcess) -> None:
    slow.http.post(
        "/v1/chat/completions",
        json={"model": NAME, "messages": [{"role": "user", "content": "SECRETPROMPT"}], "max_tokens": 20},
        headers={"Authorization": "Bearer SECRETKEY"},
    )
    slow.http.post("/v1/completions", json=endless(prompt="SECRETPROMPT", frobnicate="SECRETFIELD"))
    slow.http.post("/v1/completions", content=b'{"SECRETBODY')
    assert "SECRET" not in slow.stderr()


def test_the_server_process_never_imports_torch() -> None:
    code = (
        "import sys, tidegate_engine.__main__, tidegate_engine.server.serve, tidegate_engine.server.logs\n"
        "bad = {'torch', 'transformers', 'triton', 'numpy'} & set(sys.modules)\n"
        "ours = [name for name in sys.modules if name.startswith('tidegate_engine.')]\n"
        "wrong = [n for n in ours if n.split('.')[1] in ('runtime', 'model', 'kernels')]\n"
        "sys.exit(str(bad or wrong) if bad or wrong else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / "engine_image")}, check=False)
    assert done.returncode == 0


def test_a_running_server_has_not_mapped_torch(slow: EngineProcess) -> None:
    assert slow.chat("abc", max_tokens=1).status_code == 200
    assert "libtorch" not in Path(f"/proc/{slow.process.pid}/maps").read_text()


def test_requests_keep_their_connection_until_the_pod_drains(slow: EngineProcess) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{slow.port}") as client:
        ports = set()
        for _ in range(3):
            body = {"model": NAME, "prompt": "a", "max_tokens": 1}
            with client.stream("POST", "/v1/completions", json=body) as answer:
                answer.read()
                ports.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
        assert len(ports) == 1


def test_many_streams_at_once_all_end_with_done(tiny: Path) -> None:
    with EngineProcess(tiny, fake=[]) as engine:
        engine.wait_ready()
        ends: list[str] = []

        def ask() -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{engine.port}", timeout=PATIENCE_S) as client:
                ends.append(client.post("/v1/completions", json=endless(max_tokens=50)).text[-14:])

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ends == ["data: [DONE]\n\n"] * 40
        engine.wait_idle()
