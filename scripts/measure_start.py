"""Start the engine, ask it for one token, end it, and print what took how long.

    python scripts/measure_start.py MODEL [flags of the engine]

Exits 1 where a first token was not possible within 5 seconds of the process's start.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

WANTED = 5.0
PATIENCE = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def first_answer(port: int, model: str) -> float:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return time.monotonic() - begin


def main() -> int:
    model, flags = sys.argv[1], sys.argv[2:]
    port, admin = free_port(), free_port()
    engine_image = Path(__file__).resolve().parent.parent / "engine_image"
    command = [sys.executable, "-m", "tidegate_engine", "--model", model, "--served-name", "measured"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin), "--endpoint-lag", "0", *flags]
    begin = time.monotonic()
    engine = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(engine_image)}
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(engine.stderr or ()), daemon=True)
    reader.start()
    try:
        listening = None
        while engine.poll() is None and time.monotonic() - begin < PATIENCE:
            code = status(f"http://127.0.0.1:{admin}/ready")
            if code and listening is None:
                listening = time.monotonic() - begin
            if code == 200:
                break
            time.sleep(0.02)
        ready = time.monotonic() - begin
        if engine.poll() is not None:
            raise SystemExit(f"the engine ended with code {engine.returncode}: {lines[-1] if lines else ''}")
        answered = first_answer(port, "measured")
        engine.send_signal(signal.SIGTERM)
        ending = time.monotonic()
        engine.wait(30)
        ended = time.monotonic() - ending
    finally:
        if engine.poll() is None:
            engine.kill()
    reader.join(5)
    print(f"listening {listening or 0:.2f} s, ready {ready:.2f} s, first answer {answered:.3f} s, end {ended:.2f} s")
    for line in lines:
        if '"event": "ready"' in line or '"event": "tokenizer_ready"' in line:
            print(line.rstrip())
    return 0 if ready + answered <= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
