"""The chart as a user installs it: its operator runs as a restricted pod and acts; uninstalling removes it alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import RealCluster, condition, wait_for
from tidegate_testbed.instance import Instance
from tidegate_testbed.programs import Binaries

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "chart-install"
RELEASE = "chart-install"
pytestmark = pytest.mark.cluster


@pytest.fixture
def installed(
    testbed: Instance, cluster: RealCluster, binaries: Binaries, operator_image: str, operator_kubeconfig: Path
) -> Iterator[None]:
    """A release of its own in a namespace that refuses what is not restricted; the CRD is there already."""
    helm = [binaries.path("helm"), f"--kubeconfig={testbed.kubeconfig}", "--namespace", NAMESPACE]
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    values = {"crds.install": "false", "image.operator": operator_image, "image.engine": "localhost/none:1"}
    values |= {"externalMetrics.enabled": "true", "operator.replicas": "2"}
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [*helm, "install", RELEASE, ROOT / "helm/tidegate", *settings, "--wait", "--timeout", "90s"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        assert done.returncode == 0, f"{done.stderr}\n{cluster.list('pods', NAMESPACE)}"
        yield
    finally:
        removed = subprocess.run([*helm, "uninstall", RELEASE], capture_output=True, text=True, check=False)
        cluster.delete("namespaces", None, NAMESPACE)
        wait_for(f"{NAMESPACE} is gone", lambda: cluster.get("namespaces", None, NAMESPACE) is None, 60)
    assert removed.returncode == 0, removed.stderr
    assert cluster.get("customresourcedefinitions", None, "inferenceservices.tidegate.dev"), "uninstalling took the CRD"


def test_an_installed_operator_leads_and_speaks_about_a_service_in_its_own_namespace(
    installed: None, cluster: RealCluster
) -> None:
    wait_for("one leads", lambda: holder(cluster), 30)
    service = {
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "none", "namespace": NAMESPACE}, "spec": {"model": {"source": "file:///none.gguf"}},
    }  # fmt: skip
    cluster.create(service)
    ready = wait_for(
        "it says that the image is not there",
        lambda: (
            (c := condition(cluster.get("inferenceservices", NAMESPACE, "none"), "Ready"))
            and "localhost/none:1" in c["message"]
            and c
        ),
        60,
    )
    assert ready["status"] == "False"

    # The API of external metrics is there, with the certificate that the chart made.
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/tidegate_service_desired_replicas"
    wait_for("the API server passes the question on", lambda: cluster.http.get(path, params=WEB).is_success, 30)
    refused = cluster.http.get(path)
    assert refused.status_code == 400
    assert "names no service" in refused.json()["message"]

    # Either pod says the number, the leading one by itself, and so does the one that takes over.
    former, operators = holder(cluster), pods(cluster)
    assert former in operators
    assert [said(cluster, pod, path) for pod in operators] == [["1000m"], ["1000m"]]
    cluster.delete("pods", NAMESPACE, former)
    # The one that stood by, or the pod that was made in place of the former.
    wait_for("another leads", lambda: holder(cluster) not in ("", former), 30, say=lambda: pods(cluster))
    (stood_by,) = operators - {former}
    wait_for("it says the number", lambda: said(cluster, stood_by, path) == ["1000m"], 20)


WEB = {"labelSelector": "service=none"}


def pods(cluster: RealCluster) -> set[str]:
    """The operators' names."""
    found = cluster.list("pods", NAMESPACE, "app.kubernetes.io/name=tidegate-operator")
    return {pod["metadata"]["name"] for pod in found}


def holder(cluster: RealCluster) -> str:
    """Who leads."""
    lease = cluster.get("leases", NAMESPACE, f"{RELEASE}-operator") or {}
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def said(cluster: RealCluster, pod: str, path: str) -> list[str]:
    """What this very pod answers, by the API server's proxy."""
    answer = cluster.http.get(f"/api/v1/namespaces/{NAMESPACE}/pods/https:{pod}:8443/proxy{path}", params=WEB)
    return [item["value"] for item in answer.json().get("items") or ()]
