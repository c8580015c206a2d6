"""`tidegate load`: flags in, a report out."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tidegate_lab.load.arrivals import recorded
from tidegate_lab.load.report import Report
from tidegate_lab.load.run import Load, Plan, Progress
from tidegate_lab.load.samples_file import write_samples


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a load. Every bound has a default: no load runs for ever."""
    parser.add_argument("--url", required=True, type=_url, help="the service, as in http://127.0.0.1:8000")
    parser.add_argument("--model", help="default: the first of /v1/models")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--rate", type=_positive, help="requests a second, arriving by the clock (open loop, Poisson)")
    shape.add_argument("--concurrency", type=_count, help="requests at a time, each after the last (closed loop)")
    shape.add_argument("--trace", type=Path, help="requests of a file that `tidegate trace --write` made")
    parser.add_argument("--requests", type=_count, help="at most so many (100, or all of the trace)")
    parser.add_argument("--duration", type=_positive, help="send for at most so many seconds (60, or all of the trace)")
    parser.add_argument("--timeout", type=_positive, default=120.0, help="seconds until a request has failed (120)")
    parser.add_argument("--prompt-tokens", type=_count, default=100, help="length of prompts, about (100)")
    parser.add_argument("--max-tokens", type=_count, default=32, help="length of answers (32)")
    parser.add_argument("--spread", type=_share, default=0.0, help="lengths are even within this share of them (0)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same arrivals and prompts (0)")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--samples", type=Path, help="write each completed request's times, for tidegate calibrate")
    parser.add_argument("--progress", action="store_true", help="a line of JSON a second on stderr")


def load(arguments: argparse.Namespace) -> int:
    """Run it. Exit code 0 where all was answered, 1 where a request failed or nothing was sent."""
    try:
        trace = recorded(arguments.trace) if arguments.trace else ()
    except ValueError as error:
        print(f"tidegate load: {error}", file=sys.stderr)
        return 1
    try:
        model = arguments.model or _first_model(arguments.url)
    except httpx.HTTPError as error:
        print(
            f"tidegate load: {arguments.url} does not tell its models ({error}): is it up? Or give --model",
            file=sys.stderr,
        )
        return 1
    plan = Plan(
        url=arguments.url,
        model=model,
        rate=arguments.rate,
        concurrency=arguments.concurrency or (None if arguments.rate or trace else 1),
        requests=arguments.requests or len(trace) or 100,
        duration_s=arguments.duration or (trace[-1].at_s if trace else 60.0),
        trace=trace,
        timeout_s=arguments.timeout,
        prompt_tokens=arguments.prompt_tokens,
        max_tokens=arguments.max_tokens,
        spread=arguments.spread,
        seed=arguments.seed,
    )
    report = asyncio.run(_measure(plan, arguments.progress, arguments.samples))
    print(json.dumps(report.as_json()) if arguments.output == "json" else report.text(), flush=True)
    return 0 if report.sent and not report.failed else 1


async def _measure(plan: Plan, progress: bool, samples: Path | None) -> Report:
    run = Load(plan)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.stop)
    took = await run.run(_tell if progress else None)
    if samples:
        write_samples(samples, run.outcomes)
    return Report.of(plan, run.outcomes, took)


def _tell(progress: Progress) -> None:
    print(json.dumps({"progress": asdict(progress)}), file=sys.stderr, flush=True)


def _first_model(url: str) -> str:
    response = httpx.get(f"{url}/v1/models", timeout=30, trust_env=False)
    response.raise_for_status()
    return str(response.json()["data"][0]["id"])


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is no address: write http://HOST:PORT")
    return text.rstrip("/").removesuffix("/v1")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: give a number from 0, below 1")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
