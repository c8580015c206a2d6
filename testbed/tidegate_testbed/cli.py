"""The verbs: packages, build, up, down, status, load, image, base-image, exec."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tidegate_testbed import buildah, images, network, node, prerequisites
from tidegate_testbed.instance import NODE_IP, Instance, TestbedError, instance
from tidegate_testbed.programs import Binaries, build


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tidegate-testbed", description="A real Kubernetes on this machine.")
    parser.add_argument("--name", help="two of different names run side by side (TIDEGATE_TESTBED, else tidegate)")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("packages", help="install what is missing of Debian's packages")
    verbs.add_parser("build", help="build Kubernetes and its neighbours into the cache")
    verbs.add_parser("up", help="start it; prints the kubeconfig")
    verbs.add_parser("down", help="remove all of it").add_argument(
        "--purge", action="store_true", help="its images too"
    )
    verbs.add_parser("status", help="exit code 0 where all is well")
    verbs.add_parser("load", help="bring an image into the node").add_argument(
        "image", help="a built image, or an archive"
    )
    verbs.add_parser("base-image", help="make the image that Dockerfiles start from")
    image = verbs.add_parser("image", help="build a Dockerfile")
    image.add_argument("image")
    image.add_argument("dockerfile", type=Path)
    image.add_argument("context", type=Path)
    image.add_argument("--build-arg", action="append", default=[])
    execute = verbs.add_parser("exec", help="run a command inside its network, where pods and Services answer by name")
    execute.add_argument("--dns", action="store_true", help="say how names resolve there, and run nothing")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _status(chosen: Instance) -> int:
    if not network.exists(chosen):
        print(f"  {chosen.name} is not up")
        return 1
    for row in node.status(chosen):
        print(f"  {row.component:12} {f'pid {row.pid}, {row.memory_mib} MiB' if row.pid else 'not running'}")
    if not (node.all_run(chosen) and node.node_ready(chosen)):
        print(f"  node1        not Ready (logs: {chosen.state / 'log'})")
        return 1
    print(f"  node1        Ready; KUBECONFIG={chosen.kubeconfig}")
    for name in images.loaded(chosen):
        print(f"  image        {name}")
    return 0


def _execute(chosen: Instance, dns: bool, given: list[str]) -> int:
    if dns:
        print(f"  nameserver {NODE_IP}, names like SERVICE.NAMESPACE.svc.cluster.local, short ones as from `default`;")
        print(f"  `exec` puts {chosen.resolv_conf} in the place of /etc/resolv.conf, for its command only")
        return 0
    command = given[1:] if given[:1] == ["--"] else given
    if not command:
        raise TestbedError("exec needs a command: tidegate-testbed exec -- curl …")
    return node.execute(chosen, command)


def _run(chosen: Instance, arguments: argparse.Namespace) -> int:
    if arguments.verb == "build":
        build(Binaries(chosen.cache))
        return 0
    prerequisites.require_root()
    match arguments.verb:
        case "packages":
            prerequisites.require_packages()
        case "up":
            node.up(chosen)
        case "down":
            node.down(chosen, arguments.purge)
        case "status":
            return _status(chosen)
        case "base-image":
            prerequisites.require_packages()
            buildah.base_image(chosen)
        case "image":
            prerequisites.require_packages()
            name = images.full_name(arguments.image)
            buildah.build_image(chosen, name, arguments.dockerfile, arguments.context, arguments.build_arg)
        case "load" if Path(arguments.image).is_file():
            images.load_archive(chosen, Path(arguments.image))
        case "load":
            images.load(chosen, arguments.image)
        case "exec":
            return _execute(chosen, arguments.dns, arguments.command)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run one verb; a mistake or a failure is one message on stderr and exit code 1."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(instance(arguments.name), arguments)
    except TestbedError as error:
        print(f"tidegate-testbed: {error}", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
        print(f"tidegate-testbed: `{' '.join(map(str, error.cmd))}` failed: {said.strip()}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1
