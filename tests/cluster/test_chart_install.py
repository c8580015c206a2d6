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
    values["externalMetrics.enabled"] = "true"
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
    wait_for(
        "it leads",
        lambda: (cluster.get("leases", NAMESPACE, f"{RELEASE}-operator") or {}).get("spec", {}).get("holderIdentity"),
        30,
    )
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

    # Its pod answers the API of external metrics, with the certificate that the chart made.
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/tidegate_service_desired_replicas"
    found = wait_for(
        "the API server passes the question on",
        lambda: (
            (a := cluster.http.get(path, params={"labelSelector": "service=none"})).is_success and a.json()["items"]
        ),
        30,
    )
    assert [item["value"] for item in found] == ["1000m"]
    refused = cluster.http.get(path)
    assert refused.status_code == 400
    assert "names no service" in refused.json()["message"]
