"""`tidegate explain NAMESPACE/NAME`."""

from __future__ import annotations

import argparse
import time

from tidegate_lab.cluster import Cluster, Name
from tidegate_lab.explain.account import account


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of an explanation."""
    parser.add_argument("service", type=Name.parse, metavar="NAMESPACE/NAME")


def explain(arguments: argparse.Namespace) -> int:
    """Print what was seen, what each term wanted, who won, what limited it, and what would change it."""
    for line in account(Cluster().service(arguments.service), time.time()):
        print(line)
    return 0
