"""A cluster to ask and to change in tests: the state of the world, waited for with a deadline."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
from kubernetes import config
from kubernetes.client import Configuration

Json = dict[str, Any]
T = TypeVar("T")

PLACES = {
    "namespaces": "/api/v1",
    "pods": "/api/v1",
    "services": "/api/v1",
    "serviceaccounts": "/api/v1",
    "persistentvolumes": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "events": "/apis/events.k8s.io/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "apiservices": "/apis/apiregistration.k8s.io/v1",
    "inferenceservices": "/apis/tidegate.dev/v1alpha1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
}
PLURALS = {
    "Namespace": "namespaces",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "InferenceService": "inferenceservices",
}


class NotInTime(AssertionError):
    """The world did not come to the state that was waited for."""


class RealCluster:
    """An administrator's view of one API server."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        found = Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=found)
        trust = ssl.create_default_context(cafile=found.ssl_ca_cert)
        if found.cert_file:
            trust.load_cert_chain(found.cert_file, found.key_file)
        token = found.api_key.get("authorization") or found.api_key.get("BearerToken")
        self.http = httpx.Client(
            base_url=found.host,
            verify=trust,
            timeout=20,
            trust_env=False,
            headers={"Authorization": token} if token else {},
        )

    def close(self) -> None:
        self.http.close()

    def path(self, plural: str, namespace: str | None, name: str | None = None) -> str:
        parts = [PLACES[plural], f"namespaces/{namespace}" if namespace else "", plural, name or ""]
        return "/".join(part for part in parts if part)

    def get(self, plural: str, namespace: str | None, name: str) -> Json | None:
        """The object, or None."""
        answer = self.http.get(self.path(plural, namespace, name))
        return None if answer.status_code == 404 else self._json(answer)

    def list(self, plural: str, namespace: str | None, selector: str = "") -> list[Json]:
        answer = self.http.get(self.path(plural, namespace), params={"labelSelector": selector})
        return list(self._json(answer)["items"])

    def create(self, manifest: Json) -> Json:
        """Create the object; raises AssertionError with the API server's words where it is refused."""
        plural = PLURALS[manifest["kind"]]
        answer = self.http.post(self.path(plural, manifest["metadata"].get("namespace")), json=manifest)
        return self._json(answer)

    def merge(self, plural: str, namespace: str | None, name: str, patch: Json, subresource: str = "") -> Json:
        path = self.path(plural, namespace, name) + (f"/{subresource}" if subresource else "")
        answer = self.http.patch(
            path, content=json.dumps(patch), headers={"Content-Type": "application/merge-patch+json"}
        )
        return self._json(answer)

    def delete(self, plural: str, namespace: str | None, name: str, **options: Any) -> None:
        answer = self.http.request("DELETE", self.path(plural, namespace, name), json=options or None)
        assert answer.status_code in (200, 202, 404), answer.text

    def kubectl(self, program: Path, *arguments: str, text: str | None = None) -> str:
        """What the user would type."""
        done = subprocess.run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @staticmethod
    def _json(answer: httpx.Response) -> Json:
        assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.text}"
        body: Json = answer.json()
        return body


def wait_for(
    what: str, look: Callable[[], T | bool | None], within: float, every: float = 0.25, say: Callable[[], Any] = str
) -> T:
    """Look until the answer is true, and return it; after `within` seconds fail with what was waited for."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen  # type: ignore[return-value]
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {within:g} s: {what}. {say()}")
        time.sleep(every)


def condition(obj: Json | None, kind: str) -> Json:
    """The condition of that type, or an empty one."""
    found = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in found if c["type"] == kind), {})
