"""What the lab asks of a cluster: an InferenceService, its pods, and what each pod says of its load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from kubernetes import client, config
from tidegate_operator.observed_load import LoadReport, UnreadableLoad, read_load

GROUP, VERSION, PLURAL = "tidegate.dev", "v1alpha1", "inferenceservices"
ADMIN_PORT = 9000


class ClusterError(Exception):
    """The cluster cannot be asked, or has not got what was asked for; the message names the remedy."""


class Name(NamedTuple):
    """Names an InferenceService."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Name:
        """`NAMESPACE/NAME`, or `NAME` in the namespace `default`."""
        namespace, _, name = text.rpartition("/")
        return cls(namespace or "default", name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `count` rises where the same is said again."""

    uid: str
    count: int
    reason: str
    message: str


class Cluster:
    """A connection by an ordinary kubeconfig."""

    def __init__(self, kubeconfig: Path | None = None) -> None:
        """Read `kubeconfig`, else KUBECONFIG, else ~/.kube/config. Raises ClusterError where there is none."""
        found = client.Configuration()
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                str(kubeconfig) if kubeconfig else None, client_configuration=found
            )
        except config.ConfigException as error:
            raise ClusterError(f"no cluster to talk to: {error}: set KUBECONFIG, or run `make demo`") from error
        # The default is three retries, each as long as the timeout: a table that is to be live cannot wait for them.
        found.retries = False
        connection = client.ApiClient(found)
        # The client's types leave every field optional, and do not know answers that are not parsed.
        self._core: Any = client.CoreV1Api(connection)
        self._objects: Any = client.CustomObjectsApi(connection)

    def service(self, name: Name) -> dict[str, Any]:
        """The InferenceService as the API server has it. Raises ClusterError where there is none."""
        try:
            found = self._objects.get_namespaced_custom_object(
                GROUP, VERSION, name.namespace, PLURAL, name.name, _request_timeout=5
            )
        except client.ApiException as error:
            if error.status == 404:
                raise ClusterError(f"there is no InferenceService {name}: kubectl get infsvc -A lists them") from error
            raise ClusterError(f"the API server refused to show {name}: {error.status} {error.reason}") from error
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"the API server does not answer: {error}") from error
        return dict(found)

    def services(self) -> list[dict[str, Any]]:
        """Every InferenceService of the cluster; none where the kind is not installed."""
        try:
            found = self._objects.list_cluster_custom_object(GROUP, VERSION, PLURAL, _request_timeout=5)
        except client.ApiException as error:
            if error.status == 404:
                return []
            raise ClusterError(f"the API server refused to list services: {error.status} {error.reason}") from error
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"the API server does not answer: {error}") from error
        return list(found["items"])

    def pods(self, name: Name) -> list[Any]:
        """Its pods, as the API server has them; those that are going, too. Raises what the client raises."""
        chosen = f"tidegate.dev/service={name.name}"
        return list(self._core.list_namespaced_pod(name.namespace, label_selector=chosen, _request_timeout=5).items)

    def loads(self, name: Name) -> list[LoadReport | None]:
        """The load of each ready pod, read through the API server; None for one that cannot be read."""
        try:
            pods = self.pods(name)
        except (client.ApiException, urllib3.exceptions.HTTPError):
            return [None]
        return [self._load(name.namespace, pod) for pod in sorted(p.metadata.name for p in pods if _serves(p))]

    def events(self, name: Name) -> list[Event]:
        """What the operator said of the service, oldest first; nothing where it cannot be read now."""
        chosen = f"involvedObject.kind=InferenceService,involvedObject.name={name.name}"
        try:
            found = self._core.list_namespaced_event(name.namespace, field_selector=chosen, _request_timeout=5).items
        except (client.ApiException, urllib3.exceptions.HTTPError):
            return []
        found.sort(key=lambda e: str(e.last_timestamp or e.event_time or e.metadata.creation_timestamp))
        return [Event(e.metadata.uid, e.count or 1, e.reason or "", e.message or "") for e in found]

    def _load(self, namespace: str, pod: str) -> LoadReport | None:
        try:
            answer = self._core.connect_get_namespaced_pod_proxy_with_path(
                f"{pod}:{ADMIN_PORT}", namespace, "load", _preload_content=False, _request_timeout=2
            )
            return read_load(answer.data)
        except (client.ApiException, urllib3.exceptions.HTTPError, UnreadableLoad):
            return None


def _serves(pod: Any) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())
    return ready and pod.metadata.deletion_timestamp is None
