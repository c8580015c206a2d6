"""What one stand-in pod answers on `GET /load`: counters and sketches that grow as a busy engine's do."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field

GAMMA = 1.01 / 0.99
REQUESTS_PER_S = 1.5
SLOTS = 32
HISTORY = 3000
"""Requests a pod has served before it is first asked: enough to fill a hundred bins a sketch."""
MEDIANS = {"ttft": (0.3, 0.5), "tpot": (0.03, 0.25), "e2e": (6.0, 0.6)}
"""Median, seconds, and deviation of the logarithm."""


def _bins(draw: random.Random, metric: str, count: int) -> list[str]:
    median, spread = MEDIANS[metric]
    middle, wide = math.log(median, GAMMA), spread / math.log(GAMMA)
    return [str(math.ceil(draw.gauss(middle, wide))) for _ in range(count)]


class Pool:
    """Values drawn beforehand, so that an answer costs the stand-in little."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.bins = {metric: _bins(self.draw, metric, 20_000) for metric in MEDIANS}
        self.pasts = [{metric: Counter(_bins(self.draw, metric, HISTORY)) for metric in MEDIANS} for _ in range(16)]


@dataclass(slots=True)
class PodLoad:
    """One process of an engine pod; `answer` is asked with the time, seconds on any clock that only rises."""

    pool: Pool
    boot: str
    asked_at: float
    uptime_s: float = 3600.0
    received: int = HISTORY
    running: int = 9
    sketches: dict[str, dict[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        past = self.pool.draw.choice(self.pool.pasts)
        self.sketches = {metric: dict(bins) for metric, bins in past.items()}

    def answer(self, now: float) -> bytes:
        """The body, with what came since the last one."""
        draw, passed = self.pool.draw, max(0.0, now - self.asked_at)
        self.asked_at, self.uptime_s = now, self.uptime_s + passed
        arrived = int(REQUESTS_PER_S * passed + draw.random())
        for metric, drawn in self.pool.bins.items():
            bins = self.sketches[metric]
            for k in draw.choices(drawn, k=arrived):
                bins[k] = bins.get(k, 0) + 1
        self.received += arrived
        self.running = min(SLOTS - 8, max(2, self.running + draw.choice((-1, 0, 1))))
        finished = self.received - self.running
        return json.dumps(self._report(finished), separators=(",", ":")).encode()

    def _report(self, finished: int) -> dict[str, object]:
        running, drawn = self.running, self.pool.draw
        return {
            "version": 1,
            "boot": self.boot,
            "state": "ready",
            "uptime_s": round(self.uptime_s, 3),
            "slots": SLOTS,
            "running": running,
            "waiting": 0,
            "oldest_waiting_s": None,
            "oldest_unfinished_s": 5.5,
            "kv_blocks": {"total": 4096, "used": 60 * running},
            "counters": {
                "received": self.received,
                "finished": finished,
                "rejected": 0,
                "prompt_tokens": 700 * self.received,
                "cached_tokens": 90 * self.received,
                "generated_tokens": 200 * finished,
                "preemptions": 0,
                "steps": int(30 * self.uptime_s),
            },
            "last_step_age_s": 0.02,
            "sketches": {metric: {"gamma": GAMMA, "zero": 0, "bins": bins} for metric, bins in self.sketches.items()},
            "waiting_ages": {"gamma": GAMMA, "zero": 0, "bins": {}},
            "running_tpot": {
                "gamma": GAMMA,
                "zero": 0,
                "bins": Counter(drawn.choices(self.pool.bins["tpot"], k=running)),
            },
            "step_model": {"a": 0.011, "b": 0.00021, "c": 0.0000011, "error": 0.04},
        }
