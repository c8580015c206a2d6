"""The chart: its CRD is ours, its operator's flags can be parsed, its pod is within pod security level restricted."""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_operator.settings import read
from tidegate_testbed.instance import instance
from tidegate_testbed.programs import Binaries

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/tidegate"
IMAGES = ("image.operator=operator:1", "image.engine=engine:1")

Json = dict[str, Any]


def helm(*values: str, command: str = "template") -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm") or Binaries(instance().cache).path("helm")
    words = [word for value in values for word in ("--set", value)]
    name = ["tidegate"] if command == "template" else []
    return subprocess.run(
        [program, command, *name, CHART, "--namespace", "tidegate-system", *words],
        capture_output=True, text=True, check=False, env=os.environ | {"KUBECONFIG": os.devnull},
    )  # fmt: skip


def rendered(*values: str) -> list[Json]:
    done = helm(*IMAGES, *values)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def operator_pod(*values: str) -> Json:
    (deployment,) = [m for m in rendered(*values) if m["kind"] == "Deployment"]
    pod: Json = deployment["spec"]["template"]["spec"]
    return pod


def test_the_charts_crd_is_made_of_ours() -> None:
    spec = importlib.util.spec_from_file_location("sync_chart_crd", ROOT / "scripts/sync_chart_crd.py")
    assert spec is not None
    assert spec.loader is not None
    sync = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sync)
    wanted = sync.chart_crd((ROOT / "crds/inferenceservice.yaml").read_text())
    assert (CHART / "templates/crd.yaml").read_text() == wanted, "run: python3 scripts/sync_chart_crd.py"


def test_the_crd_is_installed_as_it_is_and_kept() -> None:
    (crd,) = [m for m in rendered() if m["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load((ROOT / "crds/inferenceservice.yaml").read_text())


def test_without_the_crd_the_rest_is_the_same() -> None:
    with_crd, without = rendered(), rendered("crds.install=false")
    assert without == [m for m in with_crd if m["kind"] != "CustomResourceDefinition"]
    assert len(with_crd) == len(without) + 1


def test_lint_has_nothing_to_say() -> None:
    done = helm(*IMAGES, command="lint")
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_the_operator_understands_its_flags() -> None:
    (container,) = operator_pod("operator.scrapeInterval=5", "operator.logLevel=debug")["containers"]
    settings = read(container["args"], {"POD_NAME": "tidegate-operator-0", "POD_NAMESPACE": "tidegate-system"})
    assert settings.engine_image == "engine:1"
    assert settings.scrape_interval == 5
    assert settings.log_level == "debug"
    assert settings.lease_namespace == "tidegate-system"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.metrics_port == ports["metrics"]
    given = {variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"] for variable in container["env"]}
    assert given == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}


def test_the_defaults_of_the_chart_are_those_of_the_operator() -> None:
    (container,) = operator_pod()["containers"]
    from_chart = read(container["args"], {"POD_NAME": "a"})
    assert from_chart == read(["--engine-image=engine:1"], {"POD_NAME": "a"})


def test_the_operators_pod_is_restricted() -> None:
    pod = operator_pod()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}, "a restart mends no CRD"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param(IMAGES[1:], "image.operator: missing; name the operator's image: --set image.operator=IMAGE",
                     id="no image for the operator"),
        pytest.param(IMAGES[:1], "image.engine: missing; name the engine's image: --set image.engine=IMAGE",
                     id="no image for engines"),
        pytest.param((*IMAGES, "operator.scrapeInterval=5000"), "/operator/scrapeInterval",
                     id="an interval of more than a minute"),
        pytest.param((*IMAGES, "operator.replica=2"), "'replica' not allowed", id="a value that does not exist"),
        pytest.param((*IMAGES, "externalMetrics.enabled=true", "externalMetrics.tlsSecret=mine"),
                     "externalMetrics.caBundle: missing; give the base64 of the CA of externalMetrics.tlsSecret",
                     id="a certificate without its CA"),
        pytest.param((*IMAGES, "crds.install=perhaps"), "/crds/install", id="neither true nor false"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused(values: tuple[str, ...], says: str) -> None:
    done = helm(*values)
    assert done.returncode != 0
    assert says in done.stderr


def test_external_metrics_are_off_until_asked_for() -> None:
    assert "APIService" not in {m["kind"] for m in rendered()}
    assert "volumes" not in operator_pod()


def test_the_api_server_trusts_the_certificate_that_the_operator_is_given() -> None:
    metrics = "tidegate-operator"
    manifests = {m["kind"]: m for m in rendered("externalMetrics.enabled=true") if m["metadata"]["name"] != metrics}
    service = manifests.pop("Service")
    secret, api = manifests["Secret"], manifests["APIService"]["spec"]
    assert api["caBundle"] == secret["data"]["tls.crt"]
    assert (api["service"]["name"], api["service"]["namespace"]) == ("tidegate-external-metrics", "tidegate-system")
    pod = operator_pod("externalMetrics.enabled=true")
    (container,) = pod["containers"]
    settings = read(container["args"], {"POD_NAME": "a"})
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert settings.external_metrics_tls == Path(mount["mountPath"])
    assert volume == {"name": mount["name"], "secret": {"secretName": secret["metadata"]["name"]}}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.external_metrics_port == ports[service["spec"]["ports"][0]["targetPort"]]
    certificate = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(base64.b64decode(api["caBundle"]).decode()))
    assert ssl.create_default_context(cadata=certificate)


def test_two_operators_answer_an_hpa_with_one_certificate_by_which_they_know_each_other() -> None:
    manifests = rendered("externalMetrics.enabled=true", "operator.replicas=2")
    assert len([m for m in manifests if m["kind"] == "Secret"]) == 1
    (deployment,) = [m for m in manifests if m["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    services = [m["spec"]["selector"] for m in manifests if m["kind"] == "Service"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert all(selector.items() <= labels.items() for selector in services), "either answers"


def test_a_certificate_of_ones_own_is_used() -> None:
    own = ("externalMetrics.enabled=true", "externalMetrics.tlsSecret=mine", "externalMetrics.caBundle=Q0E=")
    manifests = rendered(*own)
    assert "Secret" not in {m["kind"] for m in manifests}
    (api,) = [m for m in manifests if m["kind"] == "APIService"]
    assert api["spec"]["caBundle"] == "Q0E="
    assert operator_pod(*own)["volumes"][0]["secret"] == {"secretName": "mine"}
