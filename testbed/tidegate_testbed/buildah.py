"""Images without Docker: a Debian base by debootstrap, and unchanged Dockerfiles by buildah on a storage of our own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tidegate_testbed import mounts, surroundings
from tidegate_testbed.instance import Instance, TestbedError
from tidegate_testbed.progress import run_watched
from tidegate_testbed.storage import Stored, read, superseded

BASE = "docker.io/library/debian:bookworm-slim"
INCLUDED = "ca-certificates,python3,python3-venv"
RUN_ROOT = "/run/tidegate-buildah"


def root(instance: Instance) -> Path:
    """buildah's storage: built images, and layers that later builds use again."""
    return instance.cache / "buildah"


def _scratch(instance: Instance) -> Path:
    """For large temporary files: /tmp is often small, or memory."""
    folder = instance.cache / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _command(instance: Instance, *arguments: str) -> list[str]:
    return ["buildah", f"--root={root(instance)}", f"--runroot={RUN_ROOT}", "--storage-driver=overlay", *arguments]


def _environment(instance: Instance) -> dict[str, str]:
    # runc, for crun 1.8 refuses a machine with both versions of cgroups.
    return os.environ | {"BUILDAH_ISOLATION": "chroot", "BUILDAH_RUNTIME": "runc", "TMPDIR": str(_scratch(instance))}


def buildah(instance: Instance, *arguments: str) -> str:
    """Run buildah on the testbed's own storage; returns its output. Raises TestbedError with its last lines."""
    done = subprocess.run(
        _command(instance, *arguments), env=_environment(instance), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        tail = "\n".join((done.stderr + done.stdout).strip().splitlines()[-15:])
        raise TestbedError(f"buildah {arguments[0]} failed:\n{tail}")
    return done.stdout


def image_id(instance: Instance, name: str) -> str:
    """The digest of an image's configuration, which names its whole content; empty where there is no such image."""
    listed = buildah(instance, "images", "--no-trunc", "--format", "{{.Name}}:{{.Tag}} {{.ID}}")
    rows = [line.split() for line in listed.splitlines()]  # buildah pads them into columns
    return next((row[1] for row in rows if row[0] == name), "")


def stored(instance: Instance, name: str) -> Stored | None:
    """The image as it lies in the storage, or None where there is no such image."""
    identifier = image_id(instance, name)
    if not identifier:
        return None
    # Byte for byte, a line's end included where it has one: its digest is the image's id.
    configuration = buildah(instance, "inspect", "--type=image", "--format={{.Config}}", name).encode()
    if f"sha256:{hashlib.sha256(configuration).hexdigest()}" != identifier:
        raise TestbedError(f"buildah does not show the configuration of {name} as it is stored")
    return read(root(instance), identifier.removeprefix("sha256:"), configuration)


def base_image(instance: Instance) -> None:
    """Make the image that the Dockerfiles start from: Debian's smallest root with Python in it; once."""
    if image_id(instance, BASE):
        return
    began = time.monotonic()
    print("  making the Debian base image (a minute or two)", flush=True)
    system = instance.cache / f"debootstrap-{os.getpid()}"
    try:
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", "bookworm", str(system)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise TestbedError(f"debootstrap failed: {done.stdout.strip()[-600:]} {done.stderr.strip()[-300:]}")
        for package in (system / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        container = buildah(instance, "from", "scratch").strip()
        buildah(instance, "add", "-q", container, f"{system}/", "/")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        buildah(instance, "config", "--cmd", "bash", "--env", path, container)
        buildah(instance, "commit", "-q", "--rm", container, BASE)
    finally:
        mounts.unmount([system])  # a debootstrap that was cut short leaves its /proc
        subprocess.run(["rm", "-rf", "--one-file-system", str(system)], check=True)
    print(f"  made the Debian base image in {time.monotonic() - began:.0f} s", flush=True)


def build_image(instance: Instance, name: str, dockerfile: Path, context: Path, arguments: Sequence[str] = ()) -> None:
    """Build an unchanged Dockerfile, its layers cached. pip's downloads go to a cache on this machine, by a mount.

    Certificates and index settings are lent to the build by mounts as well, so none of them gets into the image.
    """
    for path, kind in ((dockerfile, dockerfile.is_file()), (context, context.is_dir())):
        if not kind:
            raise TestbedError(f"{path} is not there: image NAME DOCKERFILE CONTEXT takes a file and a folder")
    if any(line.split()[:1] == ["FROM"] and BASE in line for line in dockerfile.read_text().splitlines()):
        base_image(instance)
    downloads, pip = instance.cache / "downloads", instance.cache / "pip.conf"
    downloads.mkdir(parents=True, exist_ok=True)
    volumes = [f"--volume={downloads}:/root/.cache"]
    authorities = surroundings.authorities(os.environ)
    if authorities:
        volumes.append(f"--volume={authorities.resolve()}:{surroundings.DEBIAN_AUTHORITIES}:ro")
    unfinished = pip.with_name(f"pip.conf.{os.getpid()}")
    unfinished.touch(mode=0o600)  # an index's address may hold a password
    unfinished.write_text(surroundings.pip_configuration(os.environ, surroundings.pip_files(Path.home())))
    unfinished.rename(pip)
    command = _command(
        instance, "build", "--layers", "--pull-never", "--isolation", "chroot", "--format", "oci",
        *volumes, f"--volume={pip}:/etc/pip.conf:ro",
        *(f"--build-arg={a}" for a in arguments), "-t", name, "-f", str(dockerfile), str(context),
    )  # fmt: skip
    log = _scratch(instance) / f"{name.replace('/', '_')}.log"
    seconds = run_watched(f"building {name}", command, log, _environment(instance), current=_step)
    print(f"  built {name} in {seconds:.0f} s", flush=True)
    _prune(instance)


def _step(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if line.startswith("STEP ")), "")


def _prune(instance: Instance) -> None:
    """Remove what killed builds left, and layers that nothing named is built on: gigabytes a change of requirements."""
    containers = buildah(instance, "containers", "-q").split()
    images = superseded(root(instance))
    # Listed before the look: what a build that starts from here on makes is not in the lists.
    if _busy(instance):
        return
    for verb, stale in (("rm", containers), ("rmi", images)):
        if stale:
            subprocess.run(
                _command(instance, verb, *stale), env=_environment(instance), stdin=subprocess.DEVNULL,
                capture_output=True, check=False,
            )  # fmt: skip


def _busy(instance: Instance) -> bool:
    """Whether a buildah works on the storage now."""
    storage = str(root(instance)).encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and storage in (entry / "cmdline").read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def unmount_abandoned(instance: Instance) -> None:
    """Take off what a killed build left mounted; nothing while a build runs."""
    if not _busy(instance):
        mounts.unmount([root(instance), instance.cache / "tmp", instance.cache / "downloads"])
