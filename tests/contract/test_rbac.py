"""The chart gives the operator exactly the rights it uses: no call is refused, none could be more."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_operator.world.calls import CLUSTER_CALLS, LEASE_CALLS, Call
from tidegate_testbed.instance import instance
from tidegate_testbed.programs import Binaries

ROOT = Path(__file__).resolve().parents[2]


def rendered() -> list[dict[str, Any]]:
    helm = shutil.which("helm") or Binaries(instance().cache).path("helm")
    done = subprocess.run(
        [helm, "template", "tidegate", ROOT / "helm/tidegate", "--namespace", "tidegate-system",
         "--set", "image.operator=a:1", "--set", "image.engine=b:1"],
        capture_output=True, text=True, check=False, env=os.environ | {"KUBECONFIG": os.devnull},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [m for m in yaml.safe_load_all(done.stdout) if m]


def rights(manifests: list[dict[str, Any]], kind: str) -> set[Call]:
    return {
        Call(verb, group, resource)
        for manifest in manifests
        if manifest["kind"] == kind
        for rule in manifest["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        pytest.param("ClusterRole", CLUSTER_CALLS, id="in every namespace: what the operator calls"),
        pytest.param("Role", LEASE_CALLS, id="in its own namespace: the lease"),
    ],
)
def test_the_charts_rights_are_the_calls_made(kind: str, calls: frozenset[Call]) -> None:
    assert rights(rendered(), kind) == calls


def test_the_operator_cannot_read_secrets_nor_anything_by_a_wildcard() -> None:
    for call in rights(rendered(), "ClusterRole") | rights(rendered(), "Role"):
        assert call.resource != "secrets"
        assert "*" not in call


def test_the_rights_are_bound_to_the_account_the_operator_runs_as() -> None:
    manifests = rendered()
    (deployment,) = [m for m in manifests if m["kind"] == "Deployment"]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (binding,) = [m for m in manifests if m["kind"] == kind]
        assert [(s["kind"], s["name"], s["namespace"]) for s in binding["subjects"]] == [
            ("ServiceAccount", account, "tidegate-system")
        ]
