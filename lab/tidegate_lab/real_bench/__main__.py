"""`make bench-real`: fit one pod, score it on another load, then each trace on real pods and in the simulator."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tidegate_lab.calibrate.fit import fit
from tidegate_lab.calibrate.score import Line, compare, table
from tidegate_lab.demo.shell import StepFailed
from tidegate_lab.real_bench.bed import Bed, Replay
from tidegate_lab.real_bench.pods import Watching, median_and_spread
from tidegate_lab.real_bench.quiet import Ticks, put_pods_first, put_us_first
from tidegate_lab.real_bench.rows import Row, over, real_side, simulated_sides
from tidegate_lab.real_bench.service import TRAFFIC, manifest, service
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.engine_file import engine_of, written
from tidegate_lab.simulate.fixed import serve_with
from tidegate_lab.simulate.scenario import ColdStart

LOAD = {"duration": 200, "requests": 1000, "prompt-tokens": 120, "max-tokens": 24, "spread": 0.7}


def main() -> int:
    """Run what is asked; what was measured before is kept in the file, and added to."""
    parser = argparse.ArgumentParser("make bench-real", description=__doc__)
    parser.add_argument("--only", default=",".join(TRAFFIC), help="traces, of " + ", ".join(TRAFFIC))
    parser.add_argument("--cpu", default="400m", help="of a replica, as its limit and request (400m)")
    parser.add_argument("--most", type=int, default=3, help="replicas (3)")
    parser.add_argument("--rates", default="1.6,1.2", help="requests a second, to fit on and to score on (1.6,1.2)")
    parser.add_argument("--engine", help="fit nothing: the engine's file")
    parser.add_argument("--out", type=Path, default=Path("build/bench/real.json"))
    arguments = parser.parse_args()
    put_us_first()
    bed = Bed()
    try:
        bed.prepare()
        put_pods_first(bed.cgroup)
        told = _Told(arguments.out)
        file = Path(arguments.engine) if arguments.engine else arguments.out.with_name("real-engine.json")
        if not arguments.engine:
            fit_rate, score_rate = (float(rate) for rate in arguments.rates.split(","))
            _fit(bed, told, arguments.cpu, fit_rate, score_rate, file)
        for name in filter(None, arguments.only.split(",")):
            _replay(bed, told, name, arguments.cpu, arguments.most, engine_of(str(file)))
        bed.end()
    except StepFailed as error:
        print(f"bench-real: {error}", file=sys.stderr)
        return 1
    return 0


class _Told:
    """The file of figures, written after each of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"fit": {}, "rows": []}

    def samples(self, name: str) -> Path:
        """Where the requests of one load are left, beside the figures."""
        return self._path.with_name(f"{self._path.stem}-{name}.jsonl")

    def fit(self, found: dict[str, Any]) -> None:
        self._told["fit"] = found
        self._write()

    def row(self, row: Row) -> None:
        self._told["rows"] = [r for r in self._told["rows"] if r["trace"] != row.trace] + [row.as_json()]
        self._write()

    def cold_starts(self, more: list[float]) -> list[float]:
        """All that were seen so far, these too."""
        self._told["cold_starts_s"] = [*self._told.get("cold_starts_s", ()), *more]
        self._write()
        return list(self._told["cold_starts_s"])

    def _write(self) -> None:
        self._path.write_text(json.dumps(self._told, indent=1) + "\n")


def _fit(bed: Bed, told: _Told, cpu: str, fit_rate: float, score_rate: float, file: Path) -> None:
    bed.end()
    with Watching(bed.glances) as lives:
        bed.serve(manifest(cpu, 1, 1))
        unknown = EngineModel(name=f"smollm2-{cpu}", step=StepModel(0, 0, 0), kv_tokens=bed.cache_tokens())
        known = service(cpu, 1).engine(unknown)
        first, load_a = _sent(bed, told, {"rate": fit_rate, "seed": 1})
        second, load_b = _sent(bed, told, {"rate": score_rate, "seed": 2})
    told.cold_starts(lives.cold_starts())
    engine = fit(first.served, known, slice(None)).engine
    file.write_text(written(engine))
    scores: dict[str, tuple[Line, ...]] = {}
    for title, replay in ((f"fitted on, {fit_rate:g}/s", first), (f"scored on, {score_rate:g}/s", second)):
        scores[title] = compare(replay.served, serve_with(1, replay.served.trace, engine), slice(None))
        print(f"\n{title}: {len(replay.served.trace)} requests (seconds)\n{table(scores[title])}", flush=True)
    step = engine.step
    print(f"a = {step.a * 1e3:.4g} ms, b = {step.b * 1e3:.4g} ms, c = {step.c * 1e3:.4g} ms", flush=True)
    told.fit(
        {
            "engine": asdict(engine),
            "scores": {
                title: [asdict(line) | {"error": line.error} for line in lines] for title, lines in scores.items()
            },
            "load_average": [load_a, load_b],
        }
    )


def _sent(bed: Bed, told: _Told, flags: dict[str, float]) -> tuple[Replay, float]:
    replay = bed.send(told.samples(f"load-{flags['seed']:g}"), LOAD | flags)
    if replay.report.failed:
        raise StepFailed(f"{replay.report.failed} requests failed, the first: {replay.report.first_failure}")
    return replay, os.getloadavg()[0]


def _replay(bed: Bed, told: _Told, name: str, cpu: str, most: int, engine: EngineModel) -> None:
    trace, scaled = TRAFFIC[name].trace(), service(cpu, most)
    bed.end()
    with Watching(bed.glances) as lives:
        bed.serve(manifest(cpu, None, most))
        before = Ticks.now()
        replay = bed.send(told.samples(name), {}, trace)
        stolen, load_average = Ticks.now().stolen_since(before), os.getloadavg()[0]
    median_s, sigma = median_and_spread(told.cold_starts(lives.cold_starts()))
    real = real_side(replay, lives, trace, scaled.targets)
    sides = simulated_sides(trace, scaled, engine, ColdStart(median_s=median_s, sigma=sigma))
    mean = over(sides, np.mean)
    row = Row(
        trace=name,
        requests=replay.report.sent,
        failed=replay.report.failed,
        real=real,
        simulated=mean,
        least=over(sides, np.min),
        most=over(sides, np.max),
        attainment_points=100 * (mean.attainment - real.attainment),
        replica_hours_off=mean.replica_hours / real.replica_hours - 1,
        late_max_s=replay.report.late_max_s,
        load_average=load_average,
        stolen=stolen,
        pods=lives.since(replay.began_at),
    )
    told.row(row)
    print(
        f"{name}: {row.requests} requests, {row.failed} failed; attainment {real.attainment:.1%}, simulated "
        f"{mean.attainment:.1%} ({row.attainment_points:+.1f} points); replica-hours {real.replica_hours:.3f}, "
        f"simulated {mean.replica_hours:.3f} ({row.replica_hours_off:+.1%}); cold start {median_s:.1f} s; "
        f"load average {load_average:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
