"""`tidegate watch` and `tidegate status`."""

from __future__ import annotations

import argparse
import time

from rich.console import Console

from tidegate_lab.cluster import Cluster, Name
from tidegate_lab.watch.look import Watcher, condition
from tidegate_lab.watch.table import Table


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a watch."""
    parser.add_argument("service", type=Name.parse, metavar="NAMESPACE/NAME")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long (3600)")


def watch(arguments: argparse.Namespace) -> int:
    """Print the table until time is up or the user has seen enough."""
    watcher, table = Watcher(Cluster(), arguments.service), Table(Console())
    until = time.monotonic() + arguments.seconds
    while time.monotonic() < until:
        table.show(watcher.look())
        time.sleep(1.0)
    return 0


def status(_: argparse.Namespace) -> int:
    """One line a service; exit code 1 where one is not ready."""
    code = 0
    services = Cluster().services()
    for service in services:
        ready = condition(service, "Ready")
        name = Name(service["metadata"]["namespace"], service["metadata"]["name"])
        replicas = (service.get("status") or {}).get("readyReplicas", 0)
        why = "" if ready.status == "True" else f": {ready.message}"
        print(f"  {name}: Ready={ready.status} ({ready.reason}), {replicas} ready{why}")
        code = code if ready.status == "True" else 1
    if not services:
        print("  no InferenceService yet")
    return code
