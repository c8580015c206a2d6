"""The testbed's parts, each by itself: what programs are told, what is ours, what users get wrong, images."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from tidegate_testbed import (
    archives,
    configuration,
    images,
    mounts,
    network,
    prerequisites,
    processes,
    storage,
    surroundings,
)
from tidegate_testbed import instance as instances
from tidegate_testbed.instance import Instance, TestbedError
from tidegate_testbed.processes import COMPONENT, MARK, Started


@pytest.fixture
def some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """An instance that is never started, its claim in a folder of the test."""
    monkeypatch.setattr(Instance, "claim", property(lambda self: tmp_path / "claims" / self.name))
    return Instance("some", tmp_path / "cache")


# ---- What the programs are told


def test_files_are_of_their_formats_and_of_this_instance_only(some: Instance) -> None:
    node = yaml.safe_load(configuration.kubelet(some))
    assert (node["cgroupRoot"], node["failCgroupV1"], node["serializeImagePulls"]) == ("/some", False, False)
    assert (node["cpuCFSQuotaPeriod"], node["featureGates"]) == ("10ms", {"CustomCPUCFSQuotaPeriod": True})
    assert node["clusterDNS"] == [instances.NODE_IP]
    runtime = tomllib.loads(configuration.containerd(some))
    assert runtime["root"] == str(some.image_store) and runtime["state"].startswith(str(some.state))
    plugins = runtime["plugins"]
    assert plugins["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"]
    assert plugins["io.containerd.nri.v1.nri"]["disable"], "its socket would be at a fixed place of the host"
    bridge = json.loads(configuration.cni(some))["plugins"][0]
    assert bridge["ipam"]["dataDir"].startswith(str(some.state)) and bridge["hairpinMode"]
    assert yaml.safe_load(configuration.kube_proxy(some))["mode"] == "nftables"
    lines = configuration.corefile(some).splitlines()
    assert f"  bind {instances.NODE_IP}" in lines


def test_api_server_can_aggregate_a_metrics_api() -> None:
    flags = configuration.apiserver_flags(Path("/pki"))
    assert "--enable-aggregator-routing" in flags
    assert sum(f.startswith(("--requestheader-", "--proxy-client-")) for f in flags) == 7


def test_instances_of_different_names_share_nothing() -> None:
    one, two = instances.instance("one"), instances.instance("two")
    for aspect in ("state", "image_store", "netns", "cgroup", "api_port", "claim", "containerd_socket"):
        assert getattr(one, aspect) != getattr(two, aspect), aspect
    for wrong in ("a/b", "..", "x" * 21):
        with pytest.raises(TestbedError, match="letters, digits and dashes"):
            instances.instance(wrong)


def test_the_environment_may_name_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_TESTBED", raising=False)
    assert (instances.instance().name, instances.instance().api_port) == ("tidegate", 16443)
    monkeypatch.setenv("TIDEGATE_TESTBED", "lab")
    assert (instances.instance().name, instances.instance("given").name) == ("lab", "given")


# ---- Whose is it


def _sleeper(**marks: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **marks})


def test_only_marked_processes_are_ended(some: Instance) -> None:
    ours = _sleeper(**{MARK: str(some.state), COMPONENT: "etcd"})
    named_by_its_user = _sleeper(TIDEGATE_TESTBED="some")
    others = [_sleeper(), _sleeper(**{MARK: f"{some.state}-of-another", COMPONENT: "etcd"}), named_by_its_user]
    try:
        assert [(p.pid, p.component) for p in processes.owned(some)] == [(ours.pid, "etcd")]
        processes.end(some, ["kubelet"])
        assert ours.poll() is None, "another component was meant"
        processes.end(some)
        assert ours.wait(5) == -15 and processes.owned(some) == []
        assert [other.poll() for other in others] == [None, None, None]
    finally:
        for one in (ours, *others):
            one.kill()
            one.wait()


@pytest.mark.parametrize(
    ("memberships", "ours"),
    [
        ("4:cpu:/some/kubepods/pod1/abc\n", True),
        ("0::/some/kubepods/pod1/abc\n", True),
        ("4:cpu:/other/kubepods/pod1/abc\n", False),
        ("4:cpu:/something/kubepods\n", False),
        ("4:cpu:/kubepods/some/pod1\n", False),
        ("4:cpu:/\n", False),
    ],
)
def test_pods_are_known_by_their_cgroup_while_the_name_is_claimed(some: Instance, memberships: str, ours: bool) -> None:
    assert not processes.in_cgroup(some, memberships), "nothing is claimed yet"
    some.claim.parent.mkdir()
    some.claim.write_text(str(some.state))
    assert processes.in_cgroup(some, memberships) is ours


def test_a_name_that_is_anothers_is_refused_with_the_remedy(some: Instance) -> None:
    some.claim.parent.mkdir()
    some.claim.write_text("/elsewhere/state/some")
    with pytest.raises(TestbedError, match=r"another --name.*TIDEGATE_CACHE=/elsewhere "):
        network.check_claim(some)
    network.delete(some)  # touches nothing
    assert some.claim.exists()


def test_a_namespace_that_is_not_the_testbeds_is_refused(some: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "CGROUPS", some.cache)
    (some.cache / "cpu" / "some").mkdir(parents=True)
    with pytest.raises(TestbedError, match="not the testbed's: choose another --name"):
        network.claim(some)
    assert not some.claim.exists()


def test_mounts_of_a_folder_innermost_first_and_none_of_its_neighbours() -> None:
    table = "a /c/state/x ext4 rw 0 0\nb /c/state/x/pods/with\\040space tmpfs rw 0 0\nc /c/state/xy tmpfs rw 0 0\n"
    assert mounts.below([Path("/c/state/x")], table) == ["/c/state/x/pods/with space", "/c/state/x"]


# ---- Users' mistakes


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match=r"needs root.*sudo -E"):
        prerequisites.require_root()


def test_port_in_use(some: Instance) -> None:
    with (
        socket.create_server(("127.0.0.1", some.api_port)),
        pytest.raises(TestbedError, match=rf"{some.api_port} .*Address already in use.*another --name"),
    ):
        prerequisites.require_port(some)
    prerequisites.require_port(some)


def test_missing_packages_without_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("nft", "apt-get") else name)
    with pytest.raises(TestbedError, match=r"no apt-get to install them: nftables$"):
        prerequisites.require_packages()


def test_a_component_that_ends_is_told_at_once_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("first\nno space left on device\n")
    started = Started("etcd", os.posix_spawnp("false", ["false"], os.environ), log)
    began = time.monotonic()
    with pytest.raises(TestbedError, match=r"etcd ended at its start:\nfirst\nno space left"):
        processes.wait_for("the API server", lambda: False, 60, [started])
    assert time.monotonic() - began < 10


# ---- Images


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("engine", "localhost/engine:latest"),
        ("tidegate/engine:2", "localhost/tidegate/engine:2"),
        ("localhost/engine:1", "localhost/engine:1"),
        ("localhost:5000/engine", "localhost:5000/engine:latest"),
        ("docker.io/library/debian:bookworm-slim", "docker.io/library/debian:bookworm-slim"),
    ],
)
def test_full_names(given: str, full: str) -> None:
    assert images.full_name(given) == full


def test_a_stored_layer_is_its_tar_byte_for_byte(tmp_path: Path) -> None:
    packed, entries, position = io.BytesIO(), [], 0
    contents = {"etc/": b"", "etc/größe": b"x" * 3_000_000, "etc/.wh.gone": b"", "etc/last": b"abc"}
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.type = len(content), tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(entry, io.BytesIO(content))
    whole = packed.getvalue()
    diff = tmp_path / "overlay" / "one" / "diff"
    (diff / "etc").mkdir(parents=True)
    for name, content in contents.items():
        if content:  # as tar-split has it: the bytes up to a content, then what stands for it
            start = whole.index(content, position)
            entries.append({"type": 2, "payload": base64.b64encode(whole[position:start]).decode()})
            entries.append({"type": 1, "name": name, "size": len(content)})
            position = start + len(content)
            (diff / name).write_bytes(content)
    entries.append({"type": 2, "payload": base64.b64encode(whole[position:]).decode()})
    (tmp_path / "overlay-layers").mkdir()
    with gzip.open(tmp_path / "overlay-layers" / "one.tar-split.gz", "wt") as records:
        records.writelines(json.dumps(entry) + "\n" for entry in entries)
    layer = storage.Layer("one", archives.digest(whole), len(whole), "")
    assert storage.open_layer(tmp_path, layer).read() == whole


def test_layers_that_nothing_named_is_built_on_are_superseded(tmp_path: Path) -> None:
    layers = [{"id": "base"}, *({"id": i, "parent": "base"} for i in ("old", "new")), {"id": "top", "parent": "new"}]
    named = [{"id": "engine", "names": ["localhost/engine:1"], "layer": "top"}]
    unnamed = [{"id": f"step-{layer}", "names": None, "layer": layer} for layer in ("base", "old", "new")]
    for folder, content in (("overlay-images/images.json", named + unnamed), ("overlay-layers/layers.json", layers)):
        (tmp_path / folder).parent.mkdir()
        (tmp_path / folder).write_text(json.dumps(content))
    assert storage.superseded(tmp_path) == ["step-old"]


def test_a_storage_that_contradicts_the_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "overlay-images").mkdir()
    (tmp_path / "overlay-layers").mkdir()
    (tmp_path / "overlay-images" / "images.json").write_text('[{"id": "engine", "layer": "top"}]')
    (tmp_path / "overlay-layers" / "layers.json").write_text(
        '[{"id": "top", "diff-digest": "sha256:1", "diff-size": 1}]'
    )
    assert storage.read(tmp_path, "engine", b'{"rootfs": {"diff_ids": ["sha256:1"]}}').layers[0].chain == "sha256:1"
    with pytest.raises(TestbedError, match=r"remove the folder and build again"):
        storage.read(tmp_path, "engine", b'{"rootfs": {"diff_ids": ["sha256:2"]}}')


def test_stacks_are_named_as_containerd_names_them() -> None:
    first, second = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    assert storage.chain_ids([first, second]) == [first, archives.digest(f"{first} {second}".encode())]


def test_builds_get_the_index_and_the_authorities_and_no_folder_of_this_machine(tmp_path: Path) -> None:
    bundle, own = tmp_path / "ca.crt", tmp_path / "pip.conf"
    bundle.touch()
    own.write_text("[global]\nindex-url = https://index.test/simple\nfind-links = /wheels\n[install]\ntimeout = 9\n")
    text = surroundings.pip_configuration({"SSL_CERT_FILE": str(bundle), "PIP_TIMEOUT": "180"}, [own])
    assert (
        text
        == f"[global]\nindex-url = https://index.test/simple\ntimeout = 180\ncert = {surroundings.DEBIAN_AUTHORITIES}\n"
    )
    assert surroundings.pip_configuration({"SSL_CERT_FILE": "/not/there"}, []) == "[global]\n"
