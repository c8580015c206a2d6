"""Every call the operator makes to the API server, in one table. The chart's rights equal it (tests/contract)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Call(NamedTuple):
    """One right, as RBAC writes it."""

    verb: str
    group: str
    resource: str


class Kind(Enum):
    """The kinds the operator touches: (API version, plural)."""

    INFERENCE_SERVICE = ("tidegate.dev/v1alpha1", "inferenceservices")
    DEPLOYMENT = ("apps/v1", "deployments")
    SERVICE = ("v1", "services")
    SERVICE_ACCOUNT = ("v1", "serviceaccounts")
    POD_DISRUPTION_BUDGET = ("policy/v1", "poddisruptionbudgets")
    NETWORK_POLICY = ("networking.k8s.io/v1", "networkpolicies")
    POD = ("v1", "pods")
    ENDPOINT_SLICE = ("discovery.k8s.io/v1", "endpointslices")
    EVENT = ("events.k8s.io/v1", "events")
    LEASE = ("coordination.k8s.io/v1", "leases")

    @property
    def api_version(self) -> str:
        return self.value[0]

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def plural(self) -> str:
        return self.value[1]

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL's path of a list (no name) or of one object."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)

    def call(self, verb: str, subresource: str | None = None) -> Call:
        """The right that `verb` on this kind needs."""
        return Call(verb, self.group, self.plural if subresource is None else f"{self.plural}/{subresource}")


CHILDREN = {
    "Deployment": Kind.DEPLOYMENT,
    "Service": Kind.SERVICE,
    "ServiceAccount": Kind.SERVICE_ACCOUNT,
    "PodDisruptionBudget": Kind.POD_DISRUPTION_BUDGET,
    "NetworkPolicy": Kind.NETWORK_POLICY,
}
"""By the `kind` in a rendered manifest."""

WATCHED = (Kind.INFERENCE_SERVICE, Kind.DEPLOYMENT, Kind.POD, Kind.ENDPOINT_SLICE)

CLUSTER_CALLS: frozenset[Call] = frozenset(
    [kind.call(verb) for kind in WATCHED for verb in ("list", "watch")]
    # Server-side apply of an object that is not there yet needs `create` as well as `patch`.
    + [kind.call(verb) for kind in CHILDREN.values() for verb in ("get", "create", "patch")]
    + [Kind.INFERENCE_SERVICE.call("patch", "status"), Kind.POD.call("patch"), Kind.EVENT.call("create")]
)
"""Held in every namespace: the ClusterRole."""

LEASE_CALLS: frozenset[Call] = frozenset(Kind.LEASE.call(verb) for verb in ("get", "create", "update"))
"""Held in the operator's own namespace: the Role."""
