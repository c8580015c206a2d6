"""`tidegate simulate`: a service's file and a trace in, what would come of them out."""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict

from tidegate_lab.arguments import count_from_zero, positive, share, to_write
from tidegate_lab.simulate.engine import RTX4090_LLAMA_8B
from tidegate_lab.simulate.engine_file import engine_of
from tidegate_lab.simulate.run import simulate as run
from tidegate_lab.simulate.scenario import POD_LEAVES_S, ColdStart, Fault, FaultKind, Mode, Routing, Scenario
from tidegate_lab.traffic.flags import add_trace_flags, trace_of
from tidegate_lab.what_if.figures import Figures
from tidegate_lab.what_if.page import page
from tidegate_lab.what_if.policies_by_name import NAMES, policy_named
from tidegate_lab.what_if.service_file import read_service
from tidegate_lab.what_if.summary import told
from tidegate_lab.what_if.timeline import HEADER, every_s, rows

_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_FAULT = re.compile(rf"(?P<kind>[a-z0-9-]+)@(?P<at>{_NUMBER})(\+(?P<seconds>{_NUMBER}))?(\*(?P<share>{_NUMBER}))?")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The service, the traffic, the cluster, and what goes wrong."""
    parser.add_argument("--service", required=True, metavar="FILE", help="the InferenceService, as it would be applied")
    add_trace_flags(parser)
    parser.add_argument(
        "--policy", default="tidegate", metavar="NAME[=SETTING]", help=f"who chooses (tidegate): {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--engine",
        default=RTX4090_LLAMA_8B.name,
        help=f"a measured engine, a file of `tidegate calibrate`, or a,b,c in seconds ({RTX4090_LLAMA_8B.name})",
    )
    parser.add_argument(
        "--cold-start", type=_cold_start, default=ColdStart(median_s=90.0), metavar="S[~SIGMA]",
        help="from a pod's creation to readiness: median, and spread as a logarithm (90~0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--first-replicas", type=count_from_zero, metavar="N", help="ready at the beginning; default: minReplicas"
    )
    parser.add_argument(
        "--capacity", type=count_from_zero, metavar="N", help="replicas the cluster has room for; default: any"
    )
    parser.add_argument("--routing", choices=[str(r) for r in Routing], default=str(Routing.LEAST))
    parser.add_argument("--scrape-interval", type=positive, default=5.0, metavar="S", help="between looks (5)")
    parser.add_argument(
        "--fault", type=_fault, action="append", default=[], metavar="KIND@AT[+SECONDS][*SHARE]",
        help=f"repeatable: {', '.join(FaultKind)}; SHARE of the ready replicas (1)",
    )  # fmt: skip
    parser.add_argument(
        "--mode", choices=[str(m) for m in Mode], default=str(Mode.LEAP), help="every step, or from event to event"
    )
    parser.add_argument("--seed", type=count_from_zero, default=0, help="the same seed, the same outcome (0)")
    parser.add_argument("--every", type=positive, metavar="S", help="between rows without a change (60, or more)")
    parser.add_argument("--json", type=to_write, metavar="FILE", help="also write figures and timeline")
    parser.add_argument(
        "--html", type=to_write, metavar="FILE", help="also write a page with plots, which fetches nothing"
    )


def simulate(arguments: argparse.Namespace) -> int:
    """Run it and print. Exit code 0, whatever came of it."""
    service = read_service(arguments.service)
    trace = trace_of(arguments)
    for note in trace.notes:
        print(f"{arguments.trace}: {note}")
    policy = service.policy
    scenario = Scenario(
        trace=trace,
        engine=service.engine(engine_of(arguments.engine)),
        cold_start=arguments.cold_start,
        targets=service.targets,
        first_replicas=policy.minimum if arguments.first_replicas is None else arguments.first_replicas,
        minimum=policy.minimum,
        maximum=policy.maximum,
        capacity=arguments.capacity,
        drain_timeout_s=service.spec.drain.timeout,
        leaving_s=POD_LEAVES_S,
        scrape_interval_s=arguments.scrape_interval,
        routing=Routing(arguments.routing),
        faults=tuple(arguments.fault),
        seed=arguments.seed,
        mode=Mode(arguments.mode),
    )
    began = time.perf_counter()
    outcome = run(scenario, policy_named(arguments.policy, scenario, service))
    took = time.perf_counter() - began
    apart_s = arguments.every or every_s(outcome)
    print(HEADER)
    for row in rows(outcome, apart_s):
        print(row)
    figures = Figures.of(outcome)
    lines = told(service, outcome, figures)
    print("\n".join(("", *lines, f"  simulated in {took:.1f} s")))
    if arguments.json:
        written = {"figures": asdict(figures), "timeline": [asdict(row) for row in rows(outcome, apart_s)]}
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    if arguments.html:
        arguments.html.write_text(page(outcome, lines))
    return 0


def _cold_start(text: str) -> ColdStart:
    median, _, sigma = text.partition("~")
    try:
        cold_start = ColdStart(median_s=float(median), sigma=float(sigma) if sigma else 0.1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, as 90, or with their spread, as 90~0.3") from None
    if not (0 <= cold_start.median_s < 86_400 and 0 <= cold_start.sigma <= 3):
        raise argparse.ArgumentTypeError(f"{text!r}: give a median of 0 to 86400 s, and a spread of 0 to 3")
    return cold_start


def _fault(text: str) -> Fault:
    match = _FAULT.fullmatch(text)
    if match is None or match["kind"] not in set(FaultKind):
        raise argparse.ArgumentTypeError(
            f"{text!r}: give KIND@AT+SECONDS*SHARE, as http-500@600+60*0.5; kinds are {', '.join(FaultKind)}"
        )
    return Fault(
        kind=FaultKind(match["kind"]),
        at=float(match["at"]),
        seconds=float(match["seconds"] or 0),
        share=share(match["share"] or "1"),
    )
