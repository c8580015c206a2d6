"""The verbs: build, up, down, status, load, image, base-image, exec."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tidegate_testbed import images, network, node
from tidegate_testbed.instance import Instance, TestbedError, instance
from tidegate_testbed.programs import Binaries, build


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tidegate-testbed", description="A real Kubernetes on this machine.")
    parser.add_argument("--name", default="tidegate", help="two of different names run side by side")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build Kubernetes and its neighbours into the cache")
    verbs.add_parser("up", help="start it; prints the kubeconfig")
    verbs.add_parser("down", help="remove all of it").add_argument("--purge", action="store_true", help="its images too")
    verbs.add_parser("status", help="exit code 0 where all is well")
    verbs.add_parser("load", help="bring an image into the node").add_argument("image", help="a built image, or an archive")
    verbs.add_parser("base-image", help="make the image that Dockerfiles start from")
    image = verbs.add_parser("image", help="build a Dockerfile")
    image.add_argument("image")
    image.add_argument("dockerfile", type=Path)
    image.add_argument("context", type=Path)
    image.add_argument("--build-arg", action="append", default=[])
    verbs.add_parser("exec", help="run a command inside its network").add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _status(chosen: Instance) -> int:
    for row in node.status(chosen):
        print(f"  {row.component:12} {f'pid {row.pid}, {row.memory_mib} MiB' if row.pid else 'not running'}")
    if not node.ready(chosen):
        print(f"  node1        not Ready (logs: {chosen.state / 'log'})" if network.exists(chosen) else "  not up")
        return 1
    print(f"  node1        Ready; KUBECONFIG={chosen.kubeconfig}")
    for name in images.loaded(chosen):
        print(f"  image        {name}")
    return 0


def _run(chosen: Instance, arguments: argparse.Namespace) -> int:
    match arguments.verb:
        case "build":
            node.require()
            build(Binaries(chosen.cache))
        case "up":
            node.up(chosen)
        case "down":
            node.down(chosen, arguments.purge)
        case "status":
            return _status(chosen)
        case "base-image":
            node.require()
            images.base_image(chosen)
        case "image":
            node.require()
            images.build_image(chosen, arguments.image, arguments.dockerfile, arguments.context, arguments.build_arg)
        case "load" if Path(arguments.image).is_file():
            images.load_archive(chosen, Path(arguments.image))
        case "load":
            if arguments.image not in images.loaded(chosen):
                images.load(chosen, arguments.image)
        case "exec":
            command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
            if not command:
                raise TestbedError("exec needs a command: tidegate-testbed exec -- curl …")
            return node.execute(chosen, command)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run one verb; a mistake or a failure is one message on stderr and exit code 1."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(instance(arguments.name), arguments)
    except TestbedError as error:
        print(f"tidegate-testbed: {error}", file=sys.stderr)
        return 1
