"""`tidegate demo` and `tidegate images`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from tidegate_lab.demo import story
from tidegate_lab.demo.burst import Burst
from tidegate_lab.demo.places import Testbed, choose
from tidegate_lab.demo.shell import Shell

ROOT = Path(__file__).parents[3]
"""The checkout: the demo builds its Dockerfiles and installs its chart."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """How hard the burst is; the rest is told by DEMO_KUBECONFIG and IMAGE_REGISTRY."""
    worth = "arrivals of the burst, in what one replica serves (%(default)s)"
    parser.add_argument("--worth", type=float, default=Burst.worth, help=worth)
    parser.add_argument("--seed", type=int, default=Burst.seed)


def demo(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    shell = _shell()
    place = choose(shell, ROOT)
    other = os.environ.get("KUBECONFIG")
    if other and other != str(place.kubeconfig):
        shell.console.print(
            f"KUBECONFIG={other} is left alone; DEMO_KUBECONFIG={other} make demo would use it", highlight=False
        )
    return story.tell(shell, place, arguments.worth, arguments.seed)


def add_image_flags(parser: argparse.ArgumentParser) -> None:
    """Building needs no cluster."""
    parser.add_argument("--build-only", action="store_true", help="do not load them into the testbed")


def images(arguments: argparse.Namespace) -> int:
    """Build both images, and load them into the testbed that is up."""
    testbed = Testbed(_shell(), ROOT)
    testbed.build()
    if not arguments.build_only:
        testbed.load()
    return 0


def _shell() -> Shell:
    # A log has no width: rows are as long as they are.
    return Shell(Console(soft_wrap=False, width=None if Console().is_terminal else 160), ROOT)
