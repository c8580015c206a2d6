"""Soak the engine: random requests, clients that leave, stop strings, deadlines and a cache that is far too small.

    python scripts/soak_engine.py MODEL [--minutes 20] [--clients 24] [--seed 1] [--json FILE] [-- flags of the engine]

Starts the real server on loopback and prints what came of every request. Exits 1 where a request did not end exactly
once, a block stayed taken, or, from five minutes on, the memory of a process grew in the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

NAME = "soaked"
FLAGS = (
    *("--max-model-len", "256", "--kv-cache-memory", "16Mi", "--chunked-prefill-tokens", "64"),
    *("--max-running-requests", "16", "--max-queued-requests", "16"),
)
GROWTH_ALLOWED = 8 * 2**20
"""Bytes in the second half of a soak."""
LAST_PATIENCE = 180.0
"""Seconds for what is in flight when no more is asked."""
JUDGED_FROM = 5.0
"""Minutes. In shorter ones allocators still warm up."""
OPENINGS = (
    "Once upon a time",
    "The quick brown fox " * 5,
    "def add(a, b):\n    return a + b\n" * 3,
    "1 2 3 4 5",
    "é😀",
)
STOPS = ("the", "\n\n", " a", "ing", "e", "zzzz never said")


@dataclass
class Memory:
    """A process's resident bytes over time."""

    pid: int
    samples: list[tuple[float, int]] = field(default_factory=list)

    def look(self, now: float) -> None:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        if found is None:
            raise RuntimeError(f"process {self.pid} has ended")
        self.samples.append((now, int(found[1]) * 1024))

    def slope(self) -> float:
        """Bytes a second, by least squares over the second half."""
        half = self.samples[len(self.samples) // 2 :]
        if len(half) < 2:
            return 0.0
        mean_t = sum(t for t, _ in half) / len(half)
        mean_m = sum(m for _, m in half) / len(half)
        spread = sum((t - mean_t) ** 2 for t, _ in half)
        return sum((t - mean_t) * (m - mean_m) for t, m in half) / spread if spread else 0.0


@dataclass
class Report:
    """What came of a soak."""

    minutes: float
    requests: int
    outcomes: dict[str, int]
    faults: list[str]
    counters: dict[str, int]
    kv_blocks: dict[str, int]
    rss_mib: dict[str, tuple[float, float]]
    """By process: at the middle, at the end."""
    slope_kib_per_minute: dict[str, float]


class Soak:
    """The clients' side: asks, leaves, and keeps count."""

    def __init__(self, http: httpx.AsyncClient, seed: int) -> None:
        self._http = http
        self._random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []

    async def client(self, until: float) -> None:
        """Ask one thing after another."""
        while time.monotonic() < until:
            path, body = self._request()
            leaves = self._random.expovariate(1.0) if self._random.random() < 0.25 else None
            # While others keep coming a wait may be long; once they have stopped, everything must end.
            patience = max(until - time.monotonic(), 0) + LAST_PATIENCE if leaves is None else leaves
            try:
                async with asyncio.timeout(patience):
                    outcome = await self._ask(path, body)
            except TimeoutError:
                outcome = "client left" if leaves is not None else self._fault(f"no end: {body}")
            except httpx.TransportError as error:
                outcome = self._fault(f"{type(error).__name__}: {body}")
            self.outcomes[outcome] += 1
            if outcome == "queue full":
                await asyncio.sleep(self._random.uniform(0.1, 0.5))  # sooner than Retry-After asks: it is a soak

    def _request(self) -> tuple[str, dict[str, Any]]:
        draw = self._random
        text = draw.choice(OPENINGS) + f" {draw.randrange(8)}" * draw.randrange(12)
        body: dict[str, Any] = {"model": NAME, "priority": draw.choice([0, 0, 0, -3, 2])}
        if draw.random() < 0.15:
            body["deadline_s"] = draw.choice([0.001, 0.3, 2.0, 60.0])
        kind = draw.random()
        if kind < 0.1:
            return "/v1/embeddings", body | {"input": [text] * draw.randint(1, 3)}
        body |= {"max_tokens": draw.randint(1, 60), "n": draw.choice([1, 1, 1, 2, 3]), "stream": draw.random() < 0.6}
        body |= {"temperature": draw.choice([0, 0.7, 1.0]), "ignore_eos": draw.random() < 0.5}
        if draw.random() < 0.3:
            body["stop"] = draw.sample(STOPS, draw.randint(1, 3))
        if draw.random() < 0.05:
            body |= draw.choice([{"max_tokens": -1}, {"logit_bias": {"999999": 1}}, {"frobnicate": 1}])
        if kind < 0.5:
            if draw.random() < 0.3:
                body["logprobs"] = True
            return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": text}]}
        if draw.random() < 0.3:
            body |= {"logprobs": draw.randint(0, 3), "echo": draw.random() < 0.5}
        return "/v1/completions", body | {"prompt": text}

    async def _ask(self, path: str, body: dict[str, Any]) -> str:
        async with self._http.stream("POST", path, json=body) as answer:
            if answer.status_code == 200 and body.get("stream"):
                # 1 in 8 reads a little and goes.
                leaves_after = self._random.randint(1, 6) if self._random.random() < 0.125 else None
                return await self._read_stream(answer, body, leaves_after)
            found = json.loads(await answer.aread())
        if answer.status_code == 200:
            return self._check_whole(path, body, found)
        expected = {400: "refused", 429: "queue full", 504: "deadline over"}
        if answer.status_code not in expected or (answer.status_code == 504) > ("deadline_s" in body):
            return self._fault(f"status {answer.status_code}: {found}")
        return expected[answer.status_code]

    def _check_whole(self, path: str, body: dict[str, Any], found: dict[str, Any]) -> str:
        if path == "/v1/embeddings":
            right = len(found["data"]) == len(body["input"])
            return "embedded" if right else self._fault(f"{len(found['data'])} vectors for {len(body['input'])}")
        if [choice["finish_reason"] in ("stop", "length") for choice in found["choices"]] != [True] * body["n"]:
            return self._fault(f"finish reasons of {found}")
        texts = [choice.get("text") or choice.get("message", {}).get("content", "") for choice in found["choices"]]
        return self._check_stops(body, texts) or "whole"

    async def _read_stream(self, answer: httpx.Response, body: dict[str, Any], leaves_after: int | None) -> str:
        texts, ends, over = [""] * body["n"], Counter[int](), False
        async for line in events(answer):
            if over:
                return self._fault(f"more after [DONE]: {line}")
            if line == "data: [DONE]":
                over = True
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                return "deadline over" if "deadline_s" in body else self._fault(f"{event}")
            for choice in event["choices"]:
                texts[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content", "")
                ends[choice["index"]] += choice["finish_reason"] is not None
            if leaves_after is not None and (leaves_after := leaves_after - 1) == 0:
                return "client left"
        if not over or ends != Counter(range(body["n"])):
            return self._fault(f"a stream that ended {dict(ends)} times, [DONE] {over}")
        return self._check_stops(body, texts) or "streamed"

    def _check_stops(self, body: dict[str, Any], texts: list[str]) -> str | None:
        if not body.get("echo") and any(stop in text for stop in body.get("stop", ()) for text in texts):
            return self._fault(f"a stop string was said: {body.get('stop')} in {texts}")
        return None

    def _fault(self, what: str) -> str:
        self.faults.append(what)
        return "fault"


async def events(answer: httpx.Response) -> AsyncIterator[str]:
    """Events of a stream. `aiter_lines` would also cut at U+2028 and the like, which a model may well say."""
    rest = b""
    async for part in answer.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n\n")
        for one in whole:
            yield one.decode()
    if rest:
        yield rest.decode()


async def soak(
    process: subprocess.Popen[bytes], ports: tuple[int, int], minutes: float, clients: int, seed: int
) -> Report:
    """Ready, `minutes` of traffic, idle."""
    limits = httpx.Limits(max_connections=clients * 2)
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports[0]}", timeout=None, limits=limits) as http,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports[1]}", timeout=10) as admin,
    ):
        await until_ready(process, admin)
        memories = {"server": Memory(process.pid), "runtime": Memory(only_child(process.pid))}
        soaked, end = Soak(http, seed), time.monotonic() + 60 * minutes
        watching = asyncio.create_task(watch(memories, min(5.0, minutes)))
        await asyncio.gather(*(soaked.client(end) for _ in range(clients)))
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        load = await until_idle(admin)
        unended = [one for one in (await admin.get("/debug/requests")).json()["requests"] if one["state"] != "ended"]
    faults, counters = soaked.faults, load["counters"]
    if load["kv_blocks"]["used"] or load["running"] or load["waiting"] or unended:
        faults.append(f"left behind: {load['kv_blocks']}, {load['running']} running, {load['waiting']} waiting")
    if counters["received"] != counters["finished"] + counters["rejected"]:
        faults.append(f"received, finished and rejected do not add up: {counters}")
    slopes = {name: memory.slope() for name, memory in memories.items()}
    for name, slope in slopes.items():
        if minutes >= JUDGED_FROM and slope * 30 * minutes > GROWTH_ALLOWED:
            faults.append(f"the {name} grows by {slope * 60 / 1024:.0f} KiB a minute")
    rss = {
        name: tuple(round(memory.samples[at][1] / 2**20, 1) for at in (len(memory.samples) // 2, -1))
        for name, memory in memories.items()
    }
    return Report(
        minutes,
        soaked.outcomes.total(),
        dict(soaked.outcomes.most_common()),
        faults,
        counters,
        load["kv_blocks"],
        {name: (middle, last) for name, (middle, last) in rss.items()},
        {name: round(slope * 60 / 1024, 1) for name, slope in slopes.items()},
    )


def only_child(pid: int) -> int:
    """The runtime's process id."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def watch(memories: dict[str, Memory], every: float) -> None:
    """Look at the processes' memory until cancelled."""
    while True:
        for memory in memories.values():
            memory.look(time.monotonic())
        await asyncio.sleep(every)


async def until_ready(process: subprocess.Popen[bytes], admin: httpx.AsyncClient) -> None:
    """Raises RuntimeError where the engine ends, TimeoutError after two minutes."""
    async with asyncio.timeout(120):
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"the engine ended with code {process.returncode}")
            with contextlib.suppress(httpx.TransportError):
                if (await admin.get("/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.1)


async def until_idle(admin: httpx.AsyncClient) -> dict[str, Any]:
    """The last /load, when nothing runs any more or after half a minute."""
    for _ in range(300):
        load: dict[str, Any] = (await admin.get("/load")).json()
        if load["running"] == load["waiting"] == load["kv_blocks"]["used"] == 0:
            break
        await asyncio.sleep(0.1)
    return load


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Soak the engine.", usage="%(prog)s MODEL [options] [-- flags of the engine]"
    )
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments, flags = sys.argv[1:], []
    if "--" in arguments:
        arguments, flags = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    wanted = parser.parse_args(arguments)
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "tidegate_engine", "--model", wanted.model, "--served-name", NAME]
    command += ["--host", "127.0.0.1", "--port", str(ports[0]), "--admin-port", str(ports[1]), "--endpoint-lag", "0"]
    path = str(Path(__file__).resolve().parent.parent / "engine_image")
    process = subprocess.Popen([*command, *FLAGS, *flags], env=os.environ | {"PYTHONPATH": path})
    try:
        report = asyncio.run(soak(process, ports, wanted.minutes, wanted.clients, wanted.seed))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    if code != 0:
        report.faults.append(f"the engine ended with code {code}")
    text = json.dumps(asdict(report), indent=2)
    print(text)
    if wanted.json:
        wanted.json.write_text(text + "\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
