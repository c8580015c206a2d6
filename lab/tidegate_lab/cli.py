"""The command `tidegate`: one verb each for what people do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tidegate_lab.calibrate import command as calibrate
from tidegate_lab.calibrate.fit import FitError
from tidegate_lab.cluster import ClusterError
from tidegate_lab.demo import command as demo
from tidegate_lab.demo.shell import StepFailed
from tidegate_lab.explain import command as explain
from tidegate_lab.load import command as load
from tidegate_lab.plan import command as plan
from tidegate_lab.simulate.engine_file import EngineError
from tidegate_lab.simulate.scenario import ScenarioError
from tidegate_lab.traffic import command as trace
from tidegate_lab.traffic.table import TraceError
from tidegate_lab.watch import command as watch
from tidegate_lab.what_if import command as simulate
from tidegate_lab.what_if.policies_by_name import PolicyError
from tidegate_lab.what_if.service_file import ServiceFileError

FAILURES = (ClusterError, EngineError, FitError, PolicyError, ScenarioError, ServiceFileError, StepFailed, TraceError)
"""What people can mend, and are told in a line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; a failure is one line on stderr and exit code 1."""
    parser = argparse.ArgumentParser("tidegate", description="Load, watch and try out Tidegate.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, about, add_flags, run in (
        ("load", "send real streaming requests and measure the answers", load.add_flags, load.load),
        ("watch", "a live table of one service", watch.add_flags, watch.watch),
        ("explain", "why a service has as many replicas as it has", explain.add_flags, explain.explain),
        ("simulate", "what a service would do with some traffic", simulate.add_flags, simulate.simulate),
        ("status", "one line a service", None, watch.status),
        ("calibrate", "fit the simulator to a measured run", calibrate.add_flags, calibrate.calibrate),
        ("trace", "look at traffic, take a part of it, and write it for tidegate load", trace.add_flags, trace.trace),
        ("plan", "how many replicas a load needs, and whether its targets can be attained", plan.add_flags, plan.plan),
        ("demo", "the whole of it on a real Kubernetes: make demo", demo.add_flags, demo.demo),
        ("images", "build the images and load them into the testbed", demo.add_image_flags, demo.images),
    ):
        verb = verbs.add_parser(name, help=about, description=about)
        verb.set_defaults(run=run)
        if add_flags:
            add_flags(verb)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except FAILURES as error:
        print(f"tidegate {arguments.verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
