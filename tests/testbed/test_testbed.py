"""A Kubernetes of its own that comes up, works, and leaves nothing behind, also after crashes.

The instance is named `e2e`, so these tests run beside a developer's testbed. They need root, and Go for the test's pod.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidegate_testbed import archives, buildah, processes
from tidegate_testbed import instance as instances
from tidegate_testbed.instance import Instance

pytestmark = pytest.mark.testbed
HERE = Path(__file__).parent
PROGRAM = HERE.parent.parent / "testbed" / "tidegate-testbed"
WEB = "localhost/tidegate/test-web:1"


def _run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([PROGRAM, "--name", "e2e", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def _kubectl(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    facts = json.loads(instances.instance("e2e").facts.read_text())
    command = [facts["programs"]["kubectl"], f"--kubeconfig={facts['kubeconfig']}", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def _done(*arguments: str, text: str | None = None) -> str:
    done = _kubectl(*arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _left_behind() -> list[str]:
    """Whatever of the instance is on the machine: the place to look is the machine, not the testbed's own notes."""
    e2e = instances.instance("e2e")
    found = [str(p) for p in (Path("/run/netns/e2e"), e2e.claim, e2e.state) if p.exists()]
    found += [str(p) for p in Path("/sys/fs/cgroup").glob("**/e2e")]
    found += [m for m in Path("/proc/mounts").read_text().splitlines() if "/e2e" in m]
    if "tg0" in {name for _, name in socket.if_nameindex()}:
        found.append("the bridge tg0 on the host")
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "cgroup").read_bytes()
        except (OSError, ValueError):
            continue
        if entry.name.isdigit() and (f"{e2e.state}/".encode() in words or b":/e2e/" in words):
            found.append(f"{entry.name}: {words[:200]!r}")
    return found


def _web_image(folder: Path) -> Path:
    """An image with one small static program, as an archive."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    subprocess.run(["go", "build", "-o", folder / "web", "."], cwd=HERE / "web", env=environment, check=True)
    layer = archives.program_layer(folder / "web")
    blob = archives.Blob(archives.digest(layer), len(layer))
    config = {"Entrypoint": ["/web"], "User": "65532:65532"}
    image = archives.image(WEB, archives.program_configuration("amd64", config, layer), [blob])
    with (folder / "web.tar").open("wb") as target:
        archives.write(target, image, [(blob, io.BytesIO(layer))])
    return folder / "web.tar"


def _manifests(models: Path) -> list[dict[str, Any]]:
    labels = {"app": "web"}
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    container = {
        "name": "web", "image": WEB, "imagePullPolicy": "Never", "readinessProbe": probe,
        "resources": {"limits": {"cpu": "300m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    }  # fmt: skip
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        },
    }
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": "models"}
    wish = {
        "accessModes": ["ReadOnlyMany"], "storageClassName": "models", "resources": {"requests": {"storage": "1Gi"}},
    }  # fmt: skip
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"},
         "spec": volume | {"hostPath": {"path": str(models), "type": "Directory"}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": wish},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
         "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
         "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def e2e(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A testbed that is up, with two Ready pods behind a Service; afterwards it is down and has left nothing."""
    chosen = instances.instance("e2e")
    _run("down", "--purge")
    try:
        _run("up")
        _run("load", str(_web_image(tmp_path_factory.mktemp("web"))))
        _done("apply", "-f", "-", text="\n---\n".join(json.dumps(m) for m in _manifests(chosen.models)))
        _done("rollout", "status", "deployment/web", "--timeout=60s")
        yield chosen
    finally:
        said = _run("down", "--purge")
    assert "e2e is down" in said and _left_behind() == [] and not chosen.image_store.exists()


def test_status_says_that_all_is_well(e2e: Instance) -> None:
    said = _run("status")
    assert said.count("pid ") == 9 and "Ready" in said and WEB in said


def test_a_second_up_changes_nothing(e2e: Instance) -> None:
    before = {p.pid for p in processes.owned(e2e)}
    assert "e2e is up" in _run("up")
    assert before <= {p.pid for p in processes.owned(e2e)}


def test_service_and_names_answer_from_inside(e2e: Instance) -> None:
    fetch = (
        "import urllib.request; print(urllib.request.urlopen('http://web.default.svc.cluster.local').read().decode())"
    )
    assert _run("exec", "--", sys.executable, "-c", fetch).strip().startswith("web-")
    assert "kubernetes.default.svc.cluster.local" in _run("exec", "--", "getent", "hosts", "kubernetes.default")
    assert _run("exec", "--", "false", code=1) == ""
    assert instances.NODE_IP in _run("exec", "--dns")


def test_limits_volumes_logs_and_exec_are_real(e2e: Instance) -> None:
    marker = e2e.models / ".testbed-e2e"
    marker.write_text("seen from the pod")
    try:
        assert _done("exec", "deployment/web", "--", "/web", "read", "/models/.testbed-e2e") == "seen from the pod"
    finally:
        marker.unlink()
    v1 = _kubectl("exec", "deployment/web", "--", "/web", "read", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    v2 = _kubectl("exec", "deployment/web", "--", "/web", "read", "/sys/fs/cgroup/cpu.max")
    assert "3000" in (v1.stdout + v2.stdout).split(), "300m of each 10 ms, as the testbed's kubelet counts"
    assert "serving as web-" in _done("logs", "deployment/web")


def test_a_port_forward_reaches_a_pod_from_the_host(e2e: Instance) -> None:
    facts = json.loads(e2e.facts.read_text())
    command = [
        facts["programs"]["kubectl"],
        f"--kubeconfig={facts['kubeconfig']}",
        "port-forward",
        "deployment/web",
        ":8080",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout
            said = forwarding.stdout.readline()  # Forwarding from 127.0.0.1:PORT -> 8080
            port = int(said.split("127.0.0.1:")[1].split()[0])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=20) as answer:
                assert answer.read().startswith(b"web-")
        finally:
            forwarding.terminate()


def test_pod_security_is_enforced(e2e: Instance) -> None:
    _done("create", "namespace", "strict")
    _done("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    refused = _kubectl("run", "web", "-n", "strict", f"--image={WEB}", "--image-pull-policy=Never")
    assert refused.returncode != 0 and 'violates PodSecurity "restricted' in refused.stderr


def test_a_changed_source_brings_one_layer_and_the_same_image_none(e2e: Instance, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        'FROM scratch\nCOPY large /large\nCOPY source /source\nENTRYPOINT ["/source"]\n'
    )
    (tmp_path / "large").write_bytes(os.urandom(20_000_000))
    brought = []
    try:
        for source in ("one", "two", "two"):
            (tmp_path / "source").write_text(source)
            _run("image", "tidegate/test-load:1", str(tmp_path / "Dockerfile"), str(tmp_path))
            brought.append(_run("load", "tidegate/test-load:1"))
    finally:
        buildah.buildah(e2e, "rmi", "localhost/tidegate/test-load:1")
    assert "20.0 MB" in brought[0] and ": 0.0 MB" in brought[1] and "loaded already" in brought[2]
    assert "build it first" in _run("load", "tidegate/nobody-built-this", code=1)


def test_status_tells_what_has_died(e2e: Instance) -> None:
    # Last of those on this testbed.
    victim = next(p for p in processes.owned(e2e) if p.component == "coredns")
    os.kill(victim.pid, 9)
    processes.wait_for("its end", lambda: victim.pid not in {p.pid for p in processes.owned(e2e)}, 10)
    assert "coredns      not running" in _run("status", code=1)


@pytest.mark.parametrize("victims", [["etcd", "containerd"], ["up"]], ids=["components", "up itself"])
def test_after_a_crash_in_the_middle_of_up_down_leaves_nothing(victims: list[str]) -> None:
    e2e = instances.instance("e2e")
    _run("down")
    starting = subprocess.Popen([PROGRAM, "--name", "e2e", "up"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wanted = {"etcd", "containerd", "kubelet"}
        processes.wait_for("a half-started testbed", lambda: wanted <= {p.component for p in processes.owned(e2e)}, 90)
        for process in processes.owned(e2e):
            if process.component in victims:
                os.kill(process.pid, 9)
        if "up" in victims:
            starting.kill()
    finally:
        output, _ = starting.communicate(timeout=200)
    assert starting.returncode == (-9 if "up" in victims else 1), output
    _run("down", "--purge")
    assert _left_behind() == []
    assert "e2e is down" in _run("down"), "it can be said twice"
