"""The testbed, the CRD, the chart's rights, and the operator as a process of its own with exactly those rights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_cluster import Json, RealCluster, condition, wait_for
from tidegate_testbed import images, node
from tidegate_testbed.instance import Instance, instance
from tidegate_testbed.processes import inside
from tidegate_testbed.programs import Binaries

ROOT = Path(__file__).resolve().parents[2]
OPERATOR_NAMESPACE = "tidegate-system"
RELEASE = "tidegate"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "CustomResourceDefinition")


def _tag(image: str) -> str:
    done = subprocess.run([ROOT / "scripts/image_tag.sh", image], capture_output=True, text=True, check=True)
    return f"localhost/tidegate/{image}:{done.stdout.strip()}"


@pytest.fixture(scope="session")
def testbed() -> Instance:
    chosen = instance(os.environ.get("TIDEGATE_TESTBED", "tidegate"))
    node.up(chosen)
    return chosen


@pytest.fixture(scope="session")
def binaries(testbed: Instance) -> Binaries:
    return Binaries(testbed.cache)


def _loaded(testbed: Instance, program: str) -> str:
    image = _tag(program)
    if image not in images.loaded(testbed):
        pytest.fail(f"{image} is not loaded into the testbed: run `make images` first", pytrace=False)
    return image


@pytest.fixture(scope="session")
def engine_image(testbed: Instance) -> str:
    """The engine built from this tree, for tests that run it."""
    return _loaded(testbed, "engine")


@pytest.fixture(scope="session")
def operator_image(testbed: Instance) -> str:
    """The operator built from this tree, for tests that install it."""
    return _loaded(testbed, "operator")


@pytest.fixture(scope="session")
def cluster(testbed: Instance) -> Iterator[RealCluster]:
    real = RealCluster(testbed.kubeconfig)
    yield real
    real.close()


@pytest.fixture(scope="session")
def kind(cluster: RealCluster, binaries: Binaries) -> RealCluster:
    """The API server with the CRD of this tree."""
    cluster.kubectl(
        binaries.path("kubectl"), "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"),
    )  # fmt: skip
    name = "inferenceservices.tidegate.dev"
    wait_for(
        "the CRD is served",
        lambda: condition(cluster.get("customresourcedefinitions", None, name), "Established").get("status") == "True",
        30,
    )
    return cluster


@pytest.fixture(scope="session")
def operator_kubeconfig(
    testbed: Instance, cluster: RealCluster, binaries: Binaries, tmp_path_factory: Any
) -> Iterator[Path]:
    """The chart's CRD and rights are in place, no other operator leads, and this file has the operator's own token."""
    kubectl = binaries.path("kubectl")
    rendered = subprocess.run(
        [binaries.path("helm"), "template", RELEASE, ROOT / "helm/tidegate", "--namespace", OPERATOR_NAMESPACE,
         "--set", "image.operator=unused:1", "--set", "image.engine=unused:1"],
        capture_output=True, text=True, check=False, env=os.environ | {"KUBECONFIG": "/dev/null"},
    )  # fmt: skip
    assert rendered.returncode == 0, rendered.stderr
    manifests = [m for m in yaml.safe_load_all(rendered.stdout) if m and m["kind"] in RIGHTS]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}}
    cluster.kubectl(
        kubectl,
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
        text=yaml.safe_dump_all([namespace, *manifests]),
    )
    wait_for("the CRD is served", lambda: cluster.http.get("/apis/tidegate.dev/v1alpha1").is_success, 30)
    (account,) = [m["metadata"]["name"] for m in manifests if m["kind"] == "ServiceAccount"]
    installed = cluster.list("deployments", OPERATOR_NAMESPACE, "app.kubernetes.io/name=tidegate-operator")
    for deployment in installed:  # an installed operator would hold the lease
        cluster.merge("deployments", OPERATOR_NAMESPACE, deployment["metadata"]["name"], {"spec": {"replicas": 0}})
    wait_for(
        "an installed operator ends",
        lambda: not cluster.list("pods", OPERATOR_NAMESPACE, "app.kubernetes.io/name=tidegate-operator"),
        60,
    )
    token = cluster.kubectl(kubectl, "create", "token", account, "-n", OPERATOR_NAMESPACE, "--duration=2h").strip()
    settings = yaml.safe_load(testbed.inner_kubeconfig.read_text())
    settings["users"] = [{"name": user["name"], "user": {"token": token}} for user in settings["users"]]
    path: Path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(settings))
    yield path
    for deployment in installed:
        count = {"spec": {"replicas": deployment["spec"]["replicas"]}}
        cluster.merge("deployments", OPERATOR_NAMESPACE, deployment["metadata"]["name"], count)


@dataclass
class Operator:
    """The operator as a process inside the testbed's network; it can be killed and started again in a second."""

    testbed: Instance
    kubeconfig: Path
    engine_image: str
    log: Path
    identity: str = "operator-under-test"
    metrics_port: int = 18080
    flags: tuple[str, ...] = ()
    """More than the usual ones, from the next start on."""
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        # POD_NAME is the same at every start, as it is for a container that is started again in its pod.
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(ROOT / "operator"),
            "POD_NAME": self.identity,
            "POD_NAMESPACE": OPERATOR_NAMESPACE,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*inside(self.testbed), sys.executable, "-m", "tidegate_operator", "--engine-image", self.engine_image,
                 "--metrics-port", str(self.metrics_port), "--scrape-interval", "1", "--lease-duration", "6",
                 *self.flags],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal to the process; returns its exit code."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(number)
        return process.wait(timeout=30)

    def stop(self) -> None:
        """Whatever happened before, it runs no more."""
        if self.process is not None and self.process.poll() is None:
            self.end()

    def tail(self) -> str:
        return "operator's log:\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])


@pytest.fixture(scope="session")
def running_operator(testbed: Instance, operator_kubeconfig: Path, tmp_path_factory: Any) -> Iterator[Operator]:
    process = Operator(testbed, operator_kubeconfig, _tag("engine"), tmp_path_factory.mktemp("operator") / "log")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def operator(running_operator: Operator) -> Iterator[Operator]:
    """The operator, running; a test may kill it, and the next one finds it running again."""
    if running_operator.process is None or running_operator.process.poll() is not None:
        running_operator.start()
    yield running_operator


@dataclass
class Room:
    """One namespace, with the model on a claim."""

    name: str
    cluster: RealCluster
    testbed: Instance
    operator: Operator

    def service(self, name: str, **spec: Any) -> Json:
        """Create an InferenceService on the real model; `spec` is laid over the usual one."""
        usual: Json = {
            "model": {"source": f"pvc://models/{MODEL}", "maxModelLen": 1024},
            "engine": {"maxRunningRequests": 4},
            "resources": {
                "requests": {"cpu": "100m", "memory": "700Mi"},
                "limits": {"cpu": "700m", "memory": "1500Mi"},
            },
        }
        return self.cluster.create(
            {
                "apiVersion": "tidegate.dev/v1alpha1",
                "kind": "InferenceService",
                "metadata": {"name": name, "namespace": self.name},
                "spec": usual | spec,
            }
        )

    def get(self, name: str) -> Json:
        found = self.cluster.get("inferenceservices", self.name, name)
        assert found is not None, f"InferenceService {self.name}/{name} is not there"
        return found

    def pods(self, name: str) -> list[Json]:
        return [
            pod
            for pod in self.cluster.list("pods", self.name, f"tidegate.dev/service={name}")
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def wait(self, what: str, look: Any, within: float) -> Any:
        return wait_for(what, look, within, say=self.operator.tail)


@pytest.fixture(scope="session")
def leaving(cluster: RealCluster) -> Iterator[list[str]]:
    """Namespaces that are being deleted; the session ends when the last of them is gone."""
    names: list[str] = []
    yield names
    for name in names:
        wait_for(f"namespace {name} is gone", lambda name=name: cluster.get("namespaces", None, name) is None, 90)
        cluster.delete("persistentvolumes", None, name)


def end_pods(cluster: RealCluster, namespace: str) -> bool:
    """Kill every pod of the namespace; returns whether anything is left that has or makes pods."""
    pods = cluster.list("pods", namespace)
    for pod in pods:
        cluster.delete("pods", namespace, pod["metadata"]["name"], gracePeriodSeconds=0)
    return bool(pods or cluster.list("replicasets", namespace) or cluster.list("deployments", namespace))


@pytest.fixture
def make_room(cluster: RealCluster, testbed: Instance, operator: Operator, leaving: list[str]) -> Iterator[Any]:
    """A function that makes a namespace with the model's claim; all of them are removed afterwards."""
    made: list[str] = []

    def make() -> Room:
        name = f"test-{time.time_ns() % 10**10}"
        made.append(name)
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": name, "name": "models"},
            "hostPath": {"path": str(testbed.models), "type": "Directory"},
        }
        claim = {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        cluster.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume})
        meta = {"name": "models", "namespace": name}
        cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
        # The default account appears a second after the namespace; pods of ours have their own.
        wait_for("the default account", lambda: cluster.get("serviceaccounts", name, "default"), 30)
        return Room(name, cluster, testbed, operator)

    yield make
    for name in made:
        for service in cluster.list("inferenceservices", name):
            cluster.delete("inferenceservices", name, service["metadata"]["name"])
    for name in made:
        # A namespace that still has pods when it is deleted is looked at again only after half their grace period.
        wait_for(f"the pods of {name} are gone", lambda name=name: not end_pods(cluster, name), 30, every=0.5)
        cluster.delete("namespaces", None, name)
    leaving += made


@pytest.fixture
def room(make_room: Any) -> Room:
    made: Room = make_room()
    return made
