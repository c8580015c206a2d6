"""`tidegate plan`: a load and a target in, replicas and their cost out."""

from __future__ import annotations

import argparse

import numpy as np
from tidegate_operator.resource import format_duration, parse_duration

from tidegate_lab.arguments import count, positive
from tidegate_lab.plan.needed import Fixed, Floor, NeverEnough, Wanted, busiest, fixed, floors, following
from tidegate_lab.simulate.engine import ENGINES, EngineModel
from tidegate_lab.simulate.engine_file import engine_of
from tidegate_lab.simulate.scenario import Targets
from tidegate_lab.traffic.command import about
from tidegate_lab.traffic.flags import add_trace_flags, bearable, scaled, trace_of
from tidegate_lab.traffic.synthetic import Lengths, constant
from tidegate_lab.traffic.table import TraceError
from tidegate_lab.traffic.trace import Trace

_WARM_UP_S = 300.0
_CONSTANT_S = 1800.0
"""A constant rate is judged over half an hour, after five minutes to fill up."""
_REMEDIES = {
    "ttft": "a faster engine (more tensor parallelism, a better GPU), shorter prompts, or a longer target",
    "tpot": "a faster engine (more tensor parallelism, quantization, a better GPU), or a longer target",
    "e2e": "a faster engine, shorter answers (max_tokens), or a longer target",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The load, the engine, what is promised, and what a replica costs."""
    add_trace_flags(parser, required=False)
    parser.add_argument("--rate", type=positive, help="requests a second: of the trace scaled to it, or Poisson")
    parser.add_argument("--prompt-tokens", type=count, default=1000, help="without --trace: of each prompt (1000)")
    parser.add_argument("--output-tokens", type=count, default=200, help="without --trace: of each answer (200)")
    parser.add_argument(
        "--engine", default="rtx4090-llama-8b", help=f"{', '.join(ENGINES)}, a file of tidegate calibrate, or a,b,c"
    )
    parser.add_argument("--ttft", type=_duration, help="target of the time to the first token, as in 2s")
    parser.add_argument("--tpot", type=_duration, help="target of the time per further token, as in 100ms")
    parser.add_argument("--e2e", type=_duration, help="target of the time to the last token")
    parser.add_argument("--share", type=_percent, default=0.99, help="percent of requests within every target (99)")
    parser.add_argument("--window", type=_duration, default=600.0, help="how often a following number changes (10m)")
    parser.add_argument("--cost-per-replica-hour", type=positive, help="in any currency")


def plan(arguments: argparse.Namespace) -> int:
    """Exit code 1 where the target cannot be attained."""
    engine = engine_of(arguments.engine)
    wanted = Wanted(_targets(arguments), arguments.share)
    trace = _traffic(arguments)
    for note in trace.notes:
        print(f"{trace.name}: {note}")
    print(about(trace))
    try:
        best = floors(trace, engine, wanted)
        _tell_floors(best, engine, wanted)
        if any(floor.attained < wanted.share for floor in best):
            return 1
        return _tell_needed(trace, engine, wanted, arguments)
    except NeverEnough as reason:
        print(f"not attainable: {reason}")
        return 1


def _tell_floors(best: list[Floor], engine: EngineModel, wanted: Wanted) -> None:
    print(f"\none request alone on a replica of {engine.name}, at best ({wanted.share:.4g} of them take no longer):")
    for floor in best:
        missed = floor.attained < wanted.share
        print(
            f"  {floor.target:5} {_seconds(floor.at_share_s):>10}  target {format_duration(floor.limit_s)}"
            + (
                f": not attainable by any number of replicas, {floor.attained:.2%} are within it; "
                f"{_REMEDIES[floor.target]}, or a smaller --share"
                if missed
                else ""
            )
        )


def _tell_needed(trace: Trace, engine: EngineModel, wanted: Wanted, arguments: argparse.Namespace) -> int:
    is_constant = arguments.trace is None
    guess = fixed(busiest(trace, arguments.window), engine, wanted).replicas
    steady = fixed(trace, engine, wanted, after_s=_WARM_UP_S if is_constant else 0.0, start=guess)
    hours = trace.seconds / 3600
    print(f"\n{'':34}{'replicas':>10}{'within':>9}{'replica-hours':>15}{'cost':>12}{'per 1M tokens':>15}")
    _row("a fixed number", str(steady.replicas), steady.attainment, steady.replicas * hours, trace, arguments)
    if not is_constant and trace.seconds > arguments.window:
        windows = following(trace, engine, wanted, arguments.window)
        lengths = np.minimum(arguments.window, trace.seconds - np.arange(len(windows)) * arguments.window)
        used = float((lengths * [window.replicas for window in windows]).sum() / 3600)
        _row(
            f"following the load every {format_duration(arguments.window)}",
            _range(windows),
            min(window.attainment for window in windows),
            used,
            trace,
            arguments,
        )
        print("(following: known ahead and changed at no delay, so a bound; within: of its worst window)")
    return 0


def _row(what: str, replicas: str, within: float, hours: float, trace: Trace, arguments: argparse.Namespace) -> None:
    price = arguments.cost_per_replica_hour
    cost = "" if price is None else f"{hours * price:.2f}"
    tokens = float(trace.prompt.sum(dtype=np.int64) + trace.output.sum(dtype=np.int64))
    each = "" if price is None else f"{hours * price / tokens * 1e6:.3f}"
    print(f"{what:34}{replicas:>10}{within:>9.2%}{hours:>15.2f}{cost:>12}{each:>15}")


def _range(windows: list[Fixed]) -> str:
    least, most = (pick(window.replicas for window in windows) for pick in (min, max))
    return f"{least} to {most}" if least < most else str(least)


def _traffic(arguments: argparse.Namespace) -> Trace:
    if arguments.trace is None:
        if arguments.rate is None:
            raise TraceError("--trace or --rate: give one of them, or both for a trace scaled to a rate")
        lengths = Lengths.fixed(arguments.prompt_tokens, arguments.output_tokens)
        seconds = _WARM_UP_S + _CONSTANT_S
        bearable(arguments.rate * seconds, f"--rate {arguments.rate:g}")
        return constant(f"{arguments.rate:g} requests a second", arguments.rate, seconds, lengths)
    trace = trace_of(arguments)
    if arguments.rate is None:
        return trace
    if not trace.rate:
        raise TraceError(f"--rate {arguments.rate:g}: {trace.name} is of one moment and has no rate; leave --rate out")
    return scaled(trace, arguments.rate / trace.rate, f"--rate {arguments.rate:g}")


def _targets(arguments: argparse.Namespace) -> Targets:
    given = Targets(ttft_s=arguments.ttft, tpot_s=arguments.tpot, e2e_s=arguments.e2e)
    return Targets() if given == Targets(ttft_s=None, tpot_s=None) else given


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _duration(text: str) -> float:
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time above 0, as in 2s or 100ms")
    return value


def _percent(text: str) -> float:
    value = positive(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage above 0, up to 100")
    return value / 100
