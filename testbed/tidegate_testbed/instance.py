"""Where one testbed lives: its folders, its addresses and the ports it shows on the host's loopback."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

NODE_IP = "10.88.0.1"
"""The bridge's address inside the namespace: the node's own, the API server's, CoreDNS's and the pods' gateway."""

SERVICES = "10.96.0.0/16"
"""Where Services get their addresses."""


class TestbedError(Exception):
    """The testbed cannot do what was asked; the message names the remedy."""

    __test__ = False


def cache_root() -> Path:
    """The folder of everything that is built or downloaded, outside any checkout."""
    named = os.environ.get("TIDEGATE_CACHE")
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "tidegate"


@dataclass(frozen=True, slots=True)
class Instance:
    """One testbed; two of different names run side by side."""

    name: str
    cache: Path

    @property
    def state(self) -> Path:
        """Everything one run writes; removed by `down` but for the image store."""
        return self.cache / "state" / self.name

    @property
    def image_store(self) -> Path:
        """containerd's root. It outlives `down`: that is what makes the second demo quick."""
        return self.cache / "images" / self.name

    @property
    def claim(self) -> Path:
        """Says whose the namespace and the cgroup root of this name are; in /run, to live exactly as long as they."""
        return Path("/run/tidegate-testbed", self.name)

    def claimant(self) -> str:
        """The state folder of the testbed that has this name now, or nothing."""
        return self.claim.read_text() if self.claim.exists() else ""

    @property
    def netns(self) -> str:
        return self.name

    @property
    def cgroup(self) -> str:
        return self.name

    @property
    def api_port(self) -> int:
        """The API server's port on the host's loopback: 16443 for the default name, else one that follows from it."""
        return 16443 if self.name == "tidegate" else 17000 + zlib.crc32(self.name.encode()) % 10000

    @property
    def kubeconfig(self) -> Path:
        """For the host: an ordinary kubeconfig of an administrator."""
        return self.state / "kubeconfig"

    @property
    def inner_kubeconfig(self) -> Path:
        """For programs inside the namespace."""
        return self.state / "admin.kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        return self.state / "containerd.sock"

    @property
    def resolv_conf(self) -> Path:
        """For programs inside the namespace: the cluster's names by the cluster's DNS."""
        return self.state / "resolv.conf"

    @property
    def facts(self) -> Path:
        """What another program wants to know of the testbed that is up, as JSON."""
        return self.state / "facts.json"

    @property
    def models(self) -> Path:
        """A folder that pods may mount by a hostPath volume."""
        return self.cache / "models"


def instance(name: str | None = None) -> Instance:
    """The instance of that name, else of TIDEGATE_TESTBED's, else `tidegate`, under this user's cache."""
    name = name or os.environ.get("TIDEGATE_TESTBED") or "tidegate"
    if not name.replace("-", "").isalnum() or len(name) > 20:
        raise TestbedError(f"--name {name!r} cannot name a namespace: use at most 20 letters, digits and dashes")
    return Instance(name, cache_root())
