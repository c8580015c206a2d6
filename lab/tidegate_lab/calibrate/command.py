"""`tidegate calibrate`: a measured run in, an engine model and its errors out."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tidegate_lab.arguments import count, share, to_write
from tidegate_lab.calibrate.fit import fit
from tidegate_lab.calibrate.measured import Names, read_measured
from tidegate_lab.calibrate.score import compare, table
from tidegate_lab.simulate.engine import EngineModel, StepModel
from tidegate_lab.simulate.engine_file import engine_of, written
from tidegate_lab.simulate.fixed import Served, serve_with
from tidegate_lab.traffic.read import Unit


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The run, what is known of the engine, and what to score."""
    parser.add_argument("file", help="requests with times, CSV or JSON-lines, as `tidegate load --samples` writes them")
    parser.add_argument("--score", help="another such file to score on; default: the requests that were not fitted on")
    parser.add_argument(
        "--share", type=share, help="fit on the first of the requests, this share (0.5; 1 with --score)"
    )
    parser.add_argument("--engine", help="fit nothing: score this engine, a name, a file or a,b,c")
    parser.add_argument("--name", default="calibrated", help="of the model (calibrated)")
    parser.add_argument("--slots", type=count, default=256, help="requests that run at a time (256)")
    parser.add_argument("--kv-tokens", type=count, default=1_000_000, help="that the cache holds (1000000)")
    parser.add_argument("--block-size", type=count, default=16, help="tokens in a block (16)")
    parser.add_argument("--token-budget", type=count, default=2048, help="tokens computed in a step (2048)")
    parser.add_argument(
        "--fit-kv-tokens", action="store_true", help="find the cache's effective size too, near --kv-tokens"
    )
    parser.add_argument("--write", type=to_write, help="the model as JSON, for `tidegate simulate --engine FILE`")
    for column in ("time", "prompt", "output", "first", "last"):
        parser.add_argument(f"--{column}-column", help="name of a column; those of known formats need none")
    parser.add_argument("--unit", type=Unit, choices=list(Unit), help="of numbers in columns of times")


def calibrate(arguments: argparse.Namespace) -> int:
    """Fit, score and print."""
    names = Names(
        time=arguments.time_column,
        prompt=arguments.prompt_column,
        output=arguments.output_column,
        first=arguments.first_column,
        last=arguments.last_column,
        unit=arguments.unit,
    )
    run = read_measured(arguments.file, names)
    other = read_measured(arguments.score, names) if arguments.score else None
    part_of = arguments.share or (1.0 if other else 0.5)
    part = slice(0, max(1, round(len(run.trace) * part_of)))
    if arguments.engine:
        engine = engine_of(arguments.engine)
    else:
        known = EngineModel(
            name=arguments.name,
            step=StepModel(0, 0, 0),
            slots=arguments.slots,
            kv_tokens=arguments.kv_tokens,
            block_size=arguments.block_size,
            token_budget=arguments.token_budget,
        )
        engine = replace(fit(run, known, part, kv_tokens_too=arguments.fit_kv_tokens).engine, name=arguments.name)
        for note in run.trace.notes:
            print(f"{arguments.file}: {note}")
    step = engine.step
    print(
        f"{engine.name}: a = {step.a * 1e3:.4g} ms, b = {step.b * 1e3:.4g} ms a token computed, "
        f"c = {step.c * 1e3:.4g} ms a token held; {engine.kv_tokens} tokens of cache"
    )
    _tell(f"{arguments.file}, the first {part.stop} requests, fitted on", run, engine, part)
    if part.stop < len(run.trace):
        _tell(f"{arguments.file}, the other {len(run.trace) - part.stop} requests", run, engine, slice(part.stop, None))
    if other is not None:
        _tell(f"{arguments.score}, {len(other.trace)} requests", other, engine, slice(None))
    if arguments.write:
        arguments.write.write_text(written(engine))
    return 0


def _tell(title: str, measured: Served, engine: EngineModel, rows: slice) -> None:
    print(f"\n{title} (seconds)")
    print(table(compare(measured, serve_with(1, measured.trace, engine), rows)))
